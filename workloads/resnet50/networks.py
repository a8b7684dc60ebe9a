"""Networks from uint8 images to class probabilities; comments give the number of parameters for 1,000 classes."""

from __future__ import annotations

from typing import NamedTuple

import keras
from keras import layers


class Architecture(NamedTuple):
    """An architecture of `keras.applications`, or `alexnet`, which `keras.applications` lacks.

    Attributes:
        name: Name in `keras.applications`, or `alexnet`.
        learning_rate: Learning rate for 256 images per step.
        arguments: Additional arguments of the Keras function.
    """

    name: str
    learning_rate: float = 0.1
    arguments: dict[str, bool] = {}  # noqa: RUF012  (read only)


# the network needs no preprocessing, because `build` scales the pixels
WITHOUT_PREPROCESSING = {"include_preprocessing": False}
ARCHITECTURES = {
    "resnet50": Architecture("ResNet50"),  # 25.6 M parameters
    "resnet101": Architecture("ResNet101"),  # 44.7 M
    "resnet152": Architecture("ResNet152"),  # 60.4 M
    "inception_v3": Architecture("InceptionV3"),  # 23.9 M
    "alexnet": Architecture("alexnet", 0.01),  # 62.4 M
    "vgg16": Architecture("VGG16", 0.01),  # 138.4 M
    "vgg19": Architecture("VGG19", 0.01),  # 143.7 M
    "mobilenet": Architecture("MobileNet", 0.05),  # 4.3 M
    "mobilenet-v2": Architecture("MobileNetV2", 0.05),  # 3.5 M
    "mobilenet-v3-small": Architecture("MobileNetV3Small", 0.05, WITHOUT_PREPROCESSING),  # 2.6 M
    "mobilenet-v3-large": Architecture("MobileNetV3Large", 0.05, WITHOUT_PREPROCESSING),  # 5.5 M
    "efficientnetv2-b0": Architecture("EfficientNetV2B0", 0.1, WITHOUT_PREPROCESSING),  # 7.2 M
    "efficientnetv2-b1": Architecture("EfficientNetV2B1", 0.1, WITHOUT_PREPROCESSING),  # 8.2 M
    "efficientnetv2-b2": Architecture("EfficientNetV2B2", 0.1, WITHOUT_PREPROCESSING),  # 10.2 M
    "efficientnetv2-b3": Architecture("EfficientNetV2B3", 0.1, WITHOUT_PREPROCESSING),  # 14.5 M
}


def build(arch: str, size: int, classes: int, *, weight_decay: float = 0.0, synchronized: bool = False) -> keras.Model:
    """Return a network with initial weights as in Goyal et al. (arXiv:1706.02677, section 5.1).

    Args:
        arch: A key of `ARCHITECTURES`.
        size: Height and width of the images, uint8 of shape (batch, size, size, 3).
        classes: Number of classes.
        weight_decay: Weight decay of the kernels, but not of biases and batch normalization.
        synchronized: Whether batch normalization uses the statistics of all ranks.
    """
    images = keras.Input((size, size, 3), dtype="uint8")  # (batch, 224, 224, 3)
    pixels = layers.Rescaling(1 / 127.5, offset=-1)(images)  # (batch, 224, 224, 3), -1 to 1
    architecture = ARCHITECTURES[arch]
    if arch == "alexnet":
        network = keras.Model(images, alexnet(pixels, classes), name="alexnet")
    else:
        application = getattr(keras.applications, architecture.name)
        network = application(weights=None, classes=classes, input_tensor=pixels, **architecture.arguments)

    is_mixed = keras.mixed_precision.dtype_policy().name.startswith("mixed")

    def copy_layer(layer: layers.Layer) -> layers.Layer:
        config = layer.get_config()
        if layer is network.layers[-1] and is_mixed:
            config["dtype"] = "float32"  # probabilities are float32, even in mixed precision
        if isinstance(layer, layers.BatchNormalization):
            config["synchronized"] = synchronized
        return type(layer).from_config(config)

    if synchronized or is_mixed:
        network = keras.models.clone_model(network, clone_function=copy_layer)
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.9  # as in the paper; with Keras's 0.99, the first validations would be wrong
        if arch.startswith("resnet") and layer.name.endswith("_3_bn"):
            # with these initial values, the block is the identity
            layer.gamma.assign(keras.ops.zeros(layer.gamma.shape))
    decay_weights(network, weight_decay)
    return network


def decay_weights(network: keras.Model, weight_decay: float) -> None:
    """Add weight decay to the kernels of a network, but not to biases and batch normalization.

    Saved models do not contain the weight decay.

    Args:
        network: The network, changed in place.
        weight_decay: Ratio of the decay's gradient and the weights.
    """
    for variable in network.trainable_variables if weight_decay else ():
        if variable.name.endswith("kernel"):
            variable.regularizer = keras.regularizers.L2(weight_decay / 2)  # the gradient is weight_decay * kernel


def alexnet(pixels: keras.KerasTensor, classes: int) -> keras.KerasTensor:
    """AlexNet (Krizhevsky et al., 2012) for one GPU, with 62,378,344 parameters for 1,000 classes.

    In the paper, three convolutions are split over two GPUs, which reduces the parameters to 60,965,224. This network
    has no local response normalization, as in Krizhevsky, "One weird trick for parallelizing convolutional neural
    networks", arXiv:1404.5997.
    """
    x = layers.ZeroPadding2D(2)(pixels)  # (batch, 228, 228, 3)
    x = layers.Conv2D(96, 11, strides=4, activation="relu")(x)  # (batch, 55, 55, 96)
    x = layers.MaxPooling2D(3, strides=2)(x)  # (batch, 27, 27, 96)
    x = layers.Conv2D(256, 5, padding="same", activation="relu")(x)  # (batch, 27, 27, 256)
    x = layers.MaxPooling2D(3, strides=2)(x)  # (batch, 13, 13, 256)
    for filters in (384, 384, 256):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)  # (batch, 13, 13, 256)
    x = layers.MaxPooling2D(3, strides=2)(x)  # (batch, 6, 6, 256)
    x = layers.Flatten()(x)  # (batch, 9216)
    for _ in range(2):
        x = layers.Dropout(0.5)(layers.Dense(4096, activation="relu")(x))  # (batch, 4096)
    return layers.Dense(classes, activation="softmax", name="predictions")(x)  # (batch, classes)
