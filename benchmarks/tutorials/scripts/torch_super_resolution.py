"""Sub-pixel convolution network that doubles the size of patches of photographs, in the manner of PyTorch's super-resolution example."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim
from sklearn.datasets import load_sample_image
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.upscale_factor = upscale_factor
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 32, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(32, 32, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(32, 16, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        for conv in (self.conv1, self.conv2, self.conv3):
            init.orthogonal_(conv.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv4.weight, 0.1)

    def forward(self, x):
        upscaled = F.interpolate(x, scale_factor=self.upscale_factor, mode="bicubic")
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return upscaled + self.pixel_shuffle(self.conv4(x))


def load_pairs():
    """Luminance of two photographs in patches that don't overlap; one in five is for validation."""
    patches = []
    for name in ("china.jpg", "flower.jpg"):
        photo = torch.tensor(load_sample_image(name).copy(), dtype=torch.float32) / 255
        luminance = photo @ torch.tensor([0.299, 0.587, 0.114])
        patches.append(luminance.unfold(0, 24, 24).unfold(1, 24, 24).reshape(-1, 1, 24, 24))
    high = torch.cat(patches)
    high = high[torch.randperm(len(high))]
    data = TensorDataset(F.avg_pool2d(high, 2), high)
    return random_split(data, [0.8, 0.2])


train_set, test_set = load_pairs()
training_data_loader = DataLoader(dataset=train_set, batch_size=16, shuffle=True)
testing_data_loader = DataLoader(dataset=test_set, batch_size=64)
model = Net(upscale_factor=2)
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=0.001)


def train(epoch):
    epoch_loss = 0
    for input, target in training_data_loader:
        optimizer.zero_grad()
        loss = criterion(model(input), target)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / len(training_data_loader):.5f}")


def test():
    avg_psnr = bicubic_psnr = 0
    with torch.no_grad():
        for input, target in testing_data_loader:
            avg_psnr += -10 * math.log10(criterion(model(input), target).item())
            bicubic_psnr += -10 * math.log10(
                criterion(F.interpolate(input, scale_factor=2, mode="bicubic"), target).item()
            )
    n = len(testing_data_loader)
    print(
        f"===> Avg. PSNR: {avg_psnr / n:.2f} dB, of bicubic interpolation {bicubic_psnr / n:.2f} dB"
    )


for epoch in range(1, 17):
    train(epoch)
    test()
