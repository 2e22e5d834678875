"""Trains a VQ-VAE (straight-through codes, commitment loss, EMA codebook) on patches of a photograph, in the manner of zalandoresearch's and DeepMind's notebooks."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_sample_image

torch.set_num_threads(1)
seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
np.random.seed(seed)
torch.manual_seed(seed)

batch_size = 64
num_training_updates = 500
embedding_dim, num_embeddings = 16, 64
commitment_cost, decay, learning_rate = 0.25, 0.95, 2e-3

image = load_sample_image("china.jpg")[::2, ::2].astype(np.float32) / 255 - 0.5
train_part, val_part = image[:, :240], image[:, 240:]


def sample_patches(part, n, rng, size=16):
    tops = rng.integers(0, part.shape[0] - size, n)
    lefts = rng.integers(0, part.shape[1] - size, n)
    patches = [part[t : t + size, l : l + size] for t, l in zip(tops, lefts)]
    return torch.tensor(np.stack(patches)).permute(0, 3, 1, 2).contiguous()


class VectorQuantizerEMA(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost, decay, epsilon=1e-5):
        super().__init__()
        self._embedding_dim, self._num_embeddings = embedding_dim, num_embeddings
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)
        self._embedding.weight.data.normal_(0, 0.1)
        self._embedding.weight.requires_grad_(False)
        self.register_buffer("_ema_cluster_size", torch.ones(num_embeddings))
        self.register_buffer("_ema_w", self._embedding.weight.data.clone())
        self._commitment_cost, self._decay, self._epsilon = commitment_cost, decay, epsilon

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        flat = inputs.view(-1, self._embedding_dim)
        weight = self._embedding.weight
        distances = (flat**2).sum(1, keepdim=True) + (weight**2).sum(1) - 2 * flat @ weight.t()
        indices = distances.argmin(1)
        encodings = F.one_hot(indices, self._num_embeddings).type(flat.dtype)
        quantized = self._embedding(indices).view(inputs.shape)

        if self.training:
            with torch.no_grad():
                self._ema_cluster_size.lerp_(encodings.sum(0), 1 - self._decay)
                n = self._ema_cluster_size.sum()
                size = (
                    (self._ema_cluster_size + self._epsilon)
                    / (n + self._num_embeddings * self._epsilon)
                    * n
                )
                self._ema_w.lerp_(encodings.t() @ flat, 1 - self._decay)
                self._embedding.weight.copy_(self._ema_w / size[:, None])
                # codes that nobody uses start again at a random input
                dead = self._ema_cluster_size < 0.3
                if dead.any():
                    picks = flat[torch.randint(len(flat), (int(dead.sum()),))]
                    self._embedding.weight[dead] = picks
                    self._ema_w[dead] = picks
                    self._ema_cluster_size[dead] = 1.0

        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        loss = self._commitment_cost * e_latent_loss
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = encodings.mean(0)
        perplexity = torch.exp(-(avg_probs * (avg_probs + 1e-10).log()).sum())
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity


class Residual(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self._block = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(ch, 16, 3, padding=1, bias=False),
            nn.ReLU(),
            nn.Conv2d(16, ch, 1, bias=False),
        )

    def forward(self, x):
        return x + self._block(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self._encoder = nn.Sequential(
            nn.Conv2d(3, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 4, stride=2, padding=1),
            Residual(32),
            nn.ReLU(),
        )
        self._pre_vq_conv = nn.Conv2d(32, embedding_dim, 1)
        self._vq_vae = VectorQuantizerEMA(num_embeddings, embedding_dim, commitment_cost, decay)
        self._decoder = nn.Sequential(
            nn.Conv2d(embedding_dim, 32, 3, padding=1),
            Residual(32),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1),
        )

    def forward(self, x):
        loss, quantized, perplexity = self._vq_vae(self._pre_vq_conv(self._encoder(x)))
        return loss, self._decoder(quantized), perplexity


rng = np.random.default_rng(seed)
val_images = sample_patches(val_part, 256, rng)
data_variance = train_part.var()
val_variance = val_images.var().item()
model = Model()
optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=learning_rate)

train_res_recon_error, train_res_perplexity = [], []
model.train()
for i in range(num_training_updates):
    data = sample_patches(train_part, batch_size, rng)
    optimizer.zero_grad()
    vq_loss, data_recon, perplexity = model(data)
    recon_error = F.mse_loss(data_recon, data) / float(data_variance)
    loss = recon_error + vq_loss
    loss.backward()
    optimizer.step()
    train_res_recon_error.append(recon_error.item())
    train_res_perplexity.append(perplexity.item())

    if (i + 1) % 50 == 0:
        model.eval()
        with torch.no_grad():
            _, recon, _ = model(val_images)
            val_error = F.mse_loss(recon, val_images).item() / val_variance
        model.train()
        print(
            f"{i + 1} iterations, recon_error: {np.mean(train_res_recon_error[-50:]):.4f}, "
            f"perplexity: {np.mean(train_res_perplexity[-50:]):.2f}, val_error: {val_error:.4f}"
        )
