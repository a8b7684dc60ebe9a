"""Image files as records store them: JPEG in RGB, or raw pixels.

As Inception's scripts do (models/research/inception, build_image_data.py), PNG and CMYK files become JPEG in RGB of the
highest quality. Files in RGB stay as they are, byte by byte.
"""

from __future__ import annotations

import io
import struct
import warnings
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

_QUALITY = 100
"""Of converted images, as in Inception's scripts."""

Image.MAX_IMAGE_PIXELS = None  # a user's own images may be large


@dataclass(frozen=True)
class EncodedImage:
    """An image as a record stores it.

    Attributes:
        data: A JPEG file, or the pixels as uint8 (height, width, channels).
        height: In pixels.
        width: In pixels.
        channels: 3, or 1 for raw pixels in grey.
        format: JPEG or RAW.
        converted: What it was, if it was converted, as "PNG" or "JPEG in CMYK".
    """

    data: bytes
    height: int
    width: int
    channels: int = 3
    format: str = "JPEG"
    converted: str = ""


def encode_image(content: bytes, *, resize: int = 0, raw: bool = False) -> EncodedImage:
    """Return the content of an image file as a record stores it.

    Args:
        content: A JPEG, PNG or other file that Pillow reads, whatever its name says.
        resize: Height and width in pixels to resize to; 0 keeps the image's own.
        raw: Whether to store pixels instead of a JPEG file.

    Raises:
        ValueError: It is not an image, or damaged.
    """
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content)) as image:
            warnings.simplefilter("ignore")  # about metadata
            kind = "" if image.mode == "RGB" else f" in {_COLOURS.get(image.mode, image.mode)}"
            unchanged = image.format == "JPEG" and not kind and not resize and not raw
            height, width = image.height, image.width
            if unchanged:
                image.draft("RGB", (1, 1))  # decodes all data, to find damaged ones, but an eighth of the pixels
            image.load()
            if unchanged:
                return EncodedImage(content, height, width)
            pixels = _convert_to_rgb(image)
            converted = "" if image.format == "JPEG" and not kind else f"{image.format}{kind}"
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, struct.error, MemoryError) as error:
        raise ValueError(_explain(content, error)) from None
    if resize:
        pixels = pixels.resize((resize, resize), Image.Resampling.BILINEAR)
    if raw:
        return EncodedImage(pixels.tobytes(), pixels.height, pixels.width, 3, "RAW", converted)
    stream = io.BytesIO()
    pixels.save(stream, "JPEG", quality=_QUALITY, subsampling=0)
    return EncodedImage(stream.getvalue(), pixels.height, pixels.width, 3, "JPEG", converted)


_COLOURS = {"L": "grey", "1": "black and white", "P": "a palette", "LA": "grey", "RGBA": "RGBA"}


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits of grey, which convert() would cut off at 255
        return image.convert("I").point(lambda value: value / 256).convert("RGB")
    return image.convert("RGB")


def _explain(content: bytes, error: Exception) -> str:
    if not content:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "not an image that Pillow reads"
    return f"damaged image: {error}"


def decode_image(data: bytes, height: int, width: int, channels: int, *, raw: bool) -> Image.Image:
    """Return the image of a record.

    Args:
        data: An encoded image, or raw pixels as uint8 (height, width, channels).
        height: Height in pixels, if they are raw.
        width: Width in pixels, if they are raw.
        channels: 1 or 3, if they are raw.
        raw: Whether the record has raw pixels.

    Raises:
        ValueError: The data are damaged, or do not have this size.
    """
    if not raw:
        try:
            image = Image.open(io.BytesIO(data))
            image.load()
        except (UnidentifiedImageError, OSError, SyntaxError, struct.error) as error:
            raise ValueError(_explain(data, error)) from None
        return image
    if channels not in {1, 3} or len(data) != height * width * channels:
        raise ValueError(f"{len(data)} bytes are not {height} x {width} x {channels} raw pixels")
    return Image.frombytes("L" if channels == 1 else "RGB", (width, height), data)
