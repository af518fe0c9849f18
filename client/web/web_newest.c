#include "client/web/web_newest.h"

int32_t web_newest_limit(const struct web_newest *n, size_t series)
{
    const size_t wanted = n->points ? n->points : WEB_NEWEST_LEAST;
    const size_t fit = series ? WEB_NEWEST_TOTAL / series : WEB_NEWEST_LEAST;
    return fit < 1 ? 1 : (int32_t)(fit < wanted ? fit : wanted);
}

void web_newest_learn(struct web_newest *n, size_t limit, size_t fresh, bool missing)
{
    n->missing = n->missing || missing;
    if (missing && limit < WEB_NEWEST_MOST)
        n->points = limit * 4 < WEB_NEWEST_MOST ? limit * 4 : WEB_NEWEST_MOST;
    else if (!missing && limit > WEB_NEWEST_LEAST && fresh < limit / 8)
        n->points = limit / 2;
}

bool web_newest_tell(struct web_newest *n, int64_t now_ms)
{
    if (!n->missing || (n->tells >= WEB_NEWEST_TELLS && now_ms - n->told_ms < WEB_NEWEST_TELL_MS))
        return false;
    n->missing = false;
    n->tells += n->tells < WEB_NEWEST_TELLS;
    n->told_ms = now_ms;
    return true;
}
