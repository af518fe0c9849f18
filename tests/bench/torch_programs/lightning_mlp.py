"""A Lightning module with the strategy ddp on CPUs; the launcher has started the ranks.   lightning_mlp.py STEPS"""
import os
import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(20, 1)

    def training_step(self, batch, number):
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        if self.global_step % 10 == 0:
            print("rank %d step %d loss %.4f" % (self.global_rank, self.global_step, loss.item()), flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main(steps):
    torch.set_num_threads(1)
    lightning.seed_everything(0)
    x = torch.randn(2048, 20)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32)
    trainer = lightning.Trainer(accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_steps=steps,
                                logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Regression(), data)


main(int(sys.argv[1]))
