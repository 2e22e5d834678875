"""Train with subclasses of `Hook` that override what it registers with torch, and print the calls.

    python overriding_script.py smdebug.pytorch|hook_layer.pytorch PATH

Two trials are written, PATH/recording and PATH/interpreting.
"""

import importlib
import json
import sys

import torch
from torch import nn


def recording(smd):
    """Return a subclass that notes each call, and passes it on."""

    class Recording(smd.Hook):  # type: ignore[name-defined]
        def __init__(self, *arguments, **keywords):
            self.calls = []
            super().__init__(*arguments, **keywords)

        def note(self, method, name):
            self.calls.append([self.step, method, name])

        def forward_pre_hook(self, module, inputs):
            self.note("forward_pre_hook", module._module_name)
            return super().forward_pre_hook(module, inputs)

        def forward_hook(self, module, inputs, outputs):
            self.note("forward_hook", module._module_name)
            return super().forward_hook(module, inputs, outputs)

        def _write_inputs(self, name, inputs):
            self.note("_write_inputs", name)
            super()._write_inputs(name, inputs)

        def _write_outputs(self, name, outputs):
            self.note("_write_outputs", name)
            super()._write_outputs(name, outputs)

        def backward_hook(self, tname):
            self.note("backward_hook", tname)
            original = super().backward_hook(tname)

            def back(gradient):
                self.note("back", tname)
                return original(gradient)

            return back

    return Recording


def interpreting(smd):
    """Return a subclass that saves other tensors than the hook does, as for saliency maps."""

    class Interpreting(smd.Hook):  # type: ignore[name-defined]
        calls = ()

        def forward_hook(self, module, inputs, outputs):
            name = type(module).__name__
            self._write_inputs(name, inputs)
            if isinstance(module, nn.BatchNorm1d):
                self._write_outputs(name + ".running_mean", module.running_mean)
            if outputs.requires_grad:
                outputs.register_hook(self.backward_hook(name + "_output"))
            self._write_outputs(name, outputs)
            self.last_saved_step = self.step

        def backward_hook(self, tname):
            return super().backward_hook(tname.replace("Net_", "own/"))

    return Interpreting


class Net(nn.Module):
    """Three layers, of which one is called twice."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.relu = nn.ReLU()

    def forward(self, inputs):
        """Return outputs [batch, 4]."""
        return self.relu(self.fc(self.relu(self.norm(self.fc(inputs)))))


def train(smd, hook):
    """Train five steps, of which every second one is saved, and print what the hook noted."""
    torch.manual_seed(0)
    net, loss = Net(), nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(5):
        hook.set_mode(smd.modes.EVAL if step == 3 else smd.modes.TRAIN)
        optimizer.zero_grad()
        loss(net(torch.rand(3, 4)), torch.rand(3, 4)).backward()
        optimizer.step()
    hook.close()
    print("calls:" + json.dumps(hook.calls))


def main(module, path):
    """Write both trials."""
    smd = importlib.import_module(module)
    torch.set_num_threads(1)
    for make in (recording, interpreting):
        hook = make(smd)(
            path + "/" + make.__name__, save_config=smd.SaveConfig(save_interval=2), save_all=True
        )
        train(smd, hook)


if __name__ == "__main__":
    main(*sys.argv[1:])
