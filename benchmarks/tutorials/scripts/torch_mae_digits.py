"""Masked autoencoder (75 % of the patches hidden, small decoder) on upscaled digits, then a linear probe, in the manner of facebookresearch's mae."""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

PATCH, SIDE = 2, 4
NUM = SIDE * SIDE


def patchify(imgs):
    """[N, 1, 8, 8] -> [N, 16, 4]"""
    x = imgs.reshape(len(imgs), SIDE, PATCH, SIDE, PATCH)
    return torch.einsum("nhpwq->nhwpq", x).reshape(len(imgs), NUM, PATCH * PATCH)


class MaskedAutoencoder(nn.Module):
    def __init__(self, dim=64, depth=3, dec_dim=48, dec_depth=1, heads=4):
        super().__init__()
        layer = lambda d: nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.patch_embed = nn.Linear(PATCH * PATCH, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, NUM + 1, dim) * 0.2)
        self.blocks = nn.ModuleList([layer(dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.decoder_embed = nn.Linear(dim, dec_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dec_dim))
        self.decoder_pos_embed = nn.Parameter(torch.randn(1, NUM + 1, dec_dim) * 0.2)
        self.decoder_blocks = nn.ModuleList([layer(dec_dim) for _ in range(dec_depth)])
        self.decoder_norm = nn.LayerNorm(dec_dim)
        self.decoder_pred = nn.Linear(dec_dim, PATCH * PATCH)
        nn.init.normal_(self.cls_token, std=0.02)
        nn.init.normal_(self.mask_token, std=0.02)

    def random_masking(self, x, mask_ratio):
        n, length, d = x.shape
        keep = int(length * (1 - mask_ratio))
        noise = torch.rand(n, length)
        ids_shuffle = noise.argsort(1)
        ids_restore = ids_shuffle.argsort(1)
        ids_keep = ids_shuffle[:, :keep]
        x_masked = x.gather(1, ids_keep[..., None].expand(-1, -1, d))
        mask = torch.ones(n, length)
        mask[:, :keep] = 0
        return x_masked, mask.gather(1, ids_restore), ids_restore

    def forward_encoder(self, imgs, mask_ratio):
        x = self.patch_embed(patchify(imgs)) + self.pos_embed[:, 1:]
        x, mask, ids_restore = self.random_masking(x, mask_ratio)
        cls = (self.cls_token + self.pos_embed[:, :1]).expand(len(x), -1, -1)
        x = torch.cat([cls, x], 1)
        for blk in self.blocks:
            x = blk(x)
        return self.norm(x), mask, ids_restore

    def forward_decoder(self, x, ids_restore):
        x = self.decoder_embed(x)
        tokens = self.mask_token.expand(len(x), NUM + 1 - x.shape[1], -1)
        body = torch.cat([x[:, 1:], tokens], 1)
        body = body.gather(1, ids_restore[..., None].expand(-1, -1, x.shape[2]))
        x = torch.cat([x[:, :1], body], 1) + self.decoder_pos_embed
        for blk in self.decoder_blocks:
            x = blk(x)
        return self.decoder_pred(self.decoder_norm(x))[:, 1:]

    def forward(self, imgs, mask_ratio=0.75):
        latent, mask, ids_restore = self.forward_encoder(imgs, mask_ratio)
        pred = self.forward_decoder(latent, ids_restore)
        loss = ((pred - patchify(imgs)) ** 2).mean(-1)
        return (loss * mask).sum() / mask.sum()


images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8)
order = torch.randperm(len(images))
tr, va = order[:1400], order[1400:]


@torch.no_grad()
def probe(model):
    feats = model.forward_encoder(images, 0.0)[0].mean(1).numpy()
    clf = LogisticRegression(max_iter=300, C=1.0).fit(feats[tr], labels[tr])
    return clf.score(feats[va], labels[va])


model = MaskedAutoencoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95), weight_decay=0.05)
epochs, batch = 24, 64
scheduler = torch.optim.lr_scheduler.SequentialLR(
    optimizer,
    [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=3),
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs - 3),
    ],
    milestones=[3],
)
mean_error = ((images[va] - images[tr].mean(0)) ** 2).mean()
print(f"error of the mean digit {mean_error:.4f}")
for epoch in range(epochs):
    model.train()
    total = 0.0
    for idx in tr[torch.randperm(len(tr))].split(batch):
        loss = model(images[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(idx) / len(tr)
    scheduler.step()
    model.eval()
    with torch.no_grad():
        val = model(images[va]).item()
    line = f"epoch {epoch} train loss {total:.4f} val loss {val:.4f}"
    print(line + (f" linear probe {probe(model):.4f}" if epoch % 6 == 5 else ""))
