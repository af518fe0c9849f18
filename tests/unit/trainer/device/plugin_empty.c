/* A library that is not a plugin. */
int plugin_empty(void);
int plugin_empty(void)
{
    return 0;
}
