#ifndef DDP_DAEMON_CAPTURE_CAPTURE_H
#define DDP_DAEMON_CAPTURE_CAPTURE_H

/* Reads the curves of a program that does not report metrics itself: from its output, or from the event files that it writes for
 * TensorBoard. It is a process of its own beside rank 0, under the job's account and with a low priority, because it reads what
 * strangers wrote: a pattern that takes long, or a file system that hangs, holds up nothing.
 *
 *   ddp-supervisor capture shapes STARTED_MS
 *   ddp-supervisor capture pattern STARTED_MS EXPRESSION
 *   ddp-supervisor capture tensorboard STARTED_MS DIR
 *
 * Descriptor 0 is a pipe that ends with the worker; then the rest is read, and the process ends. Lines for the supervisor go to
 * descriptor 1 (point_writer.h); 3 and 4 are the worker's stdout.log and stderr.log. It reads the files after the program has
 * written them and therefore never delays it. It takes at most a tenth of a core; if the output grows faster, parts of it are skipped. */
#define CAPTURE_WORD "capture"
int capture_main(int argc, char **argv); /* argv[0] is the mode */

#endif
