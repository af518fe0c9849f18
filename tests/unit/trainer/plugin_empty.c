/* A library, but no plugin. */
int plugin_empty(void);
int plugin_empty(void)
{
    return 0;
}
