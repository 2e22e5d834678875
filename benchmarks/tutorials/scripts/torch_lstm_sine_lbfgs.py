"""Two LSTM cells that continue sine waves, double precision and L-BFGS on the full batch, in the manner of PyTorch's time sequence prediction example."""

import sys

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

torch.set_num_threads(1)


class Sequence(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.hidden = hidden
        self.lstm1 = nn.LSTMCell(1, hidden)
        self.lstm2 = nn.LSTMCell(hidden, hidden)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t, c_t, h_t2, c_t2 = (
            torch.zeros(input.size(0), self.hidden, dtype=torch.double) for _ in range(4)
        )
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):  # if we should predict the future
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    np.random.seed(seed)
    torch.manual_seed(seed)
    T, L, N = 10, 60, 60
    x = np.arange(L)[None] + np.random.randint(-4 * T, 4 * T, (N, 1))
    data = torch.from_numpy(np.sin(x / 1.0 / T * 2.5))
    input, target = data[10:, :-1], data[10:, 1:]
    test_input, test_target = data[:10, :-1], data[:10, 1:]

    seq = Sequence().double()
    criterion = nn.MSELoss()
    # use LBFGS as optimizer since we can load the whole data to train
    optimizer = optim.LBFGS(seq.parameters(), lr=0.5, max_iter=20)
    for i in range(9):
        print("STEP: ", i)

        def closure():
            optimizer.zero_grad()
            loss = criterion(seq(input), target)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        print("loss:", loss.item())
        # begin to predict, no need to track gradient here
        with torch.no_grad():
            future = 40
            pred = seq(test_input, future=future)
            loss = criterion(pred[:, :-future], test_target)
            print("test loss:", loss.item())
