#ifndef DDP_CLIENT_CMD_FOREIGN_WORDS_H
#define DDP_CLIENT_CMD_FOREIGN_WORDS_H

/* Words that users know from Slurm, PBS, Kubernetes, Docker and the shell, and what takes their place here. */

/* For a command that ddpctl does not have: "try `ddpctl status`"; NULL: the word is not known. */
const char *foreign_command(const char *word);
/* For an option ("-N", "--ntasks") that the command (its name) does not have: "use --nodes N for the number of nodes". */
const char *foreign_option(const char *option, const void *command);

#endif
