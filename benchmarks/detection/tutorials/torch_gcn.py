"""Graph convolution on a made-up citation graph with few labels, in the manner of the GCN tutorials on Cora."""

import math
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)

# papers on 5 subjects: they mostly cite papers on their own subject and use its words a bit more often
n, classes, words = 1000, 5, 200
labels = torch.randint(classes, (n,))
same = labels[:, None] == labels[None, :]
edge = torch.rand(n, n) < torch.where(same, 0.02, 0.0012)
edge = torch.triu(edge, diagonal=1)
topic = torch.rand(classes, words) < 0.15
features = (torch.rand(n, words) < torch.where(topic[labels], 0.10, 0.05)).float()
features = features / features.sum(1, keepdim=True).clamp(min=1)

# D^-1/2 (A + I) D^-1/2 as a sparse matrix
adj = (edge | edge.T).float() + torch.eye(n)
d = adj.sum(1).rsqrt()
adj = (d[:, None] * adj * d[None, :]).to_sparse()

order = torch.randperm(n)
idx_train, idx_val, idx_test = order[:200], order[200:500], order[500:]


class GraphConvolution(nn.Module):
    """Simple GCN layer, as in the article of Kipf and Welling."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, input, adj):
        return torch.sparse.mm(adj, input @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, dropout):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


def accuracy(output, labels):
    return (output.argmax(1) == labels).float().mean().item()


model = GCN(words, 16, classes, 0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(200):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss_train = F.nll_loss(output[idx_train], labels[idx_train])
    loss_train.backward()
    optimizer.step()

    model.eval()
    with torch.no_grad():
        output = model(features, adj)
    loss_val = F.nll_loss(output[idx_val], labels[idx_val])
    if epoch % 20 == 19:
        print(
            f"Epoch: {epoch + 1:04d} loss_train: {loss_train.item():.4f} loss_val: {loss_val.item():.4f} "
            f"acc_val: {accuracy(output[idx_val], labels[idx_val]):.4f}"
        )
print(f"log(classes) {math.log(classes):.3f}")
print(f"Test set accuracy: {accuracy(output[idx_test], labels[idx_test]):.4f}")
