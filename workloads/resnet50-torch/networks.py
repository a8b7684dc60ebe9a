"""Residual networks (He et al., arXiv:1512.03385) with torchvision's layer names, so that its weights can be loaded.

This module does not import torchvision: PyPI's package requires PyPI's build of PyTorch, and clusters have their own
builds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

BLOCKS = {  # the number of blocks of each stage
    "resnet18": (2, 2, 2, 2),  # 11.7 M parameters for 1,000 classes
    "resnet34": (3, 4, 6, 3),  # 21.8 M
    "resnet50": (3, 4, 6, 3),  # 25.6 M
    "resnet101": (3, 4, 23, 3),  # 44.5 M
    "resnet152": (3, 8, 36, 3),  # 60.2 M
}


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a 1x1, a 3x3 and a 1x1 convolution (bottleneck).

    Args:
        in_channels: The number of input channels.
        width: The number of output channels; a bottleneck has four times as many.
        stride: The stride of the first 3x3 convolution (ResNet v1.5).
        bottleneck: Whether the block is a bottleneck.
    """

    def __init__(self, in_channels: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        out_channels = 4 * width if bottleneck else width
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        channels = (in_channels, width, width, out_channels) if bottleneck else (in_channels, width, out_channels)
        self.depth = len(kernels)
        for number, kernel in enumerate(kernels, 1):
            step = stride if number == self.depth - 1 else 1
            conv = nn.Conv2d(channels[number - 1], channels[number], kernel, step, kernel // 2, bias=False)
            self.add_module(f"conv{number}", conv)
            self.add_module(f"bn{number}", nn.BatchNorm2d(channels[number]))
        # with these initial values, the block is the identity
        nn.init.zeros_(self.get_submodule(f"bn{self.depth}").weight)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or in_channels != out_channels:
            conv = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output: (b, in_channels, h, w) -> (b, out_channels, h / stride, w / stride)."""
        y = x
        for number in range(1, self.depth + 1):
            y = self.get_submodule(f"bn{number}")(self.get_submodule(f"conv{number}")(y))
            y = self.relu(y) if number < self.depth else y
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A residual network with initial weights as in Goyal et al. (arXiv:1706.02677, section 5.1).

    Args:
        arch: A key of `BLOCKS`.
        classes: The number of outputs.
    """

    def __init__(self, arch: str, classes: int) -> None:
        super().__init__()
        bottleneck = arch not in {"resnet18", "resnet34"}
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        channels = 64
        for stage, count in enumerate(BLOCKS[arch]):
            width, blocks = 64 << stage, []
            for number in range(count):
                stride = 2 if stage and not number else 1
                blocks.append(Block(channels, width, stride, bottleneck=bottleneck))
                channels = 4 * width if bottleneck else width
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits: (b, 3, 224, 224) -> (b, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))  # (b, 64, 56, 56)
        for stage in range(1, 5):
            x = self.get_submodule(f"layer{stage}")(x)  # the last stage returns (b, 512 or 2048, 7, 7)
        return self.fc(x.mean((2, 3)))  # (b, classes)


def split_parameters(network: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return the optimizer's parameter groups; biases and batch normalization have no weight decay."""
    decayed_parameters = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    parameters_without_decay = [parameter for parameter in network.parameters() if parameter.ndim == 1]
    return [
        {"params": decayed_parameters, "weight_decay": weight_decay},
        {"params": parameters_without_decay, "weight_decay": 0.0},
    ]
