"""Small U-Net that segments circles in noisy synthetic images, BCE plus dice loss, in the manner of U-Net tutorials."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)


class ShapesDataset(Dataset):
    """Bright circles to find among squares that are as bright; 32 by 32 pixels."""

    def __init__(self, n, size=32):
        grid = torch.arange(size).float()
        yy, xx = torch.meshgrid(grid, grid, indexing="ij")
        self.images, self.masks = [], []
        for _ in range(n):
            image, mask = torch.zeros(size, size), torch.zeros(size, size)
            for kind in ("circle", "circle", "square"):
                cy, cx = 5 + torch.rand(2) * (size - 10)
                r = 3 + 4 * torch.rand(1)
                if kind == "circle":
                    inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r**2
                else:
                    inside = ((yy - cy).abs() < 0.9 * r) & ((xx - cx).abs() < 0.9 * r) & (mask == 0)
                image[inside] = 0.6 + 0.4 * torch.rand(1)
                if kind == "circle":
                    mask[inside] = 1.0
            image += 0.1 * torch.randn(size, size)
            self.images.append((image[None] - 0.25) / 0.35)
            self.masks.append(mask[None])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inc = DoubleConv(1, width)
        self.down1 = DoubleConv(width, 2 * width)
        self.down2 = DoubleConv(2 * width, 4 * width)
        self.pool = nn.MaxPool2d(2)
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.conv1 = DoubleConv(4 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.conv2 = DoubleConv(2 * width, width)
        self.outc = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(self.pool(x1))
        x3 = self.down2(self.pool(x2))
        x = self.conv1(torch.cat([x2, self.up1(x3)], dim=1))
        x = self.conv2(torch.cat([x1, self.up2(x)], dim=1))
        return self.outc(x)


def dice_coeff(prob, target, eps=1.0):
    inter = (prob * target).sum(dim=(1, 2, 3))
    return ((2 * inter + eps) / (prob.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3)) + eps)).mean()


def main():
    train_loader = DataLoader(ShapesDataset(480), batch_size=16, shuffle=True, drop_last=True)
    val_loader = DataLoader(ShapesDataset(96), batch_size=32)
    net = UNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2, factor=0.3)
    bce = nn.BCEWithLogitsLoss()
    for epoch in range(8):
        net.train()
        epoch_loss = 0.0
        for images, masks in train_loader:
            logits = net(images)
            loss = bce(logits, masks) + 1 - dice_coeff(torch.sigmoid(logits), masks)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        net.eval()
        with torch.no_grad():
            score = sum(dice_coeff((net(x) > 0).float(), y).item() for x, y in val_loader) / len(
                val_loader
            )
        scheduler.step(score)
        print(
            f"epoch {epoch + 1}: loss {epoch_loss / len(train_loader):.4f} validation dice {score:.4f}"
        )


if __name__ == "__main__":
    main()
