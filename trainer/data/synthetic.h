#ifndef DDP_TRAINER_DATA_SYNTHETIC_H
#define DDP_TRAINER_DATA_SYNTHETIC_H

#include "trainer/data/dataset.h"

/* The data set MyTrainDataset of PyTorch's tutorial: 20 inputs uniform in [0, 1), and one output, as
 * `torch.rand(20), torch.rand(1)`. In the tutorial, targets are noise and differ from rank to rank. Here a
 * sample is a function of its number, so every rank has the same set, and the target can be learnt: y = W x +
 * b + noise, with W and b uniform in (-1, 1) and noise uniform in (-0.05, 0.05). The set holds samples first,
 * first + 1, ...; the test split starts where the training split ends. */
struct dataset *synthetic_open(int64_t count, int64_t in, int64_t width, int64_t first);

#endif
