"""Conversion of image files to the content of records: JPEG in RGB, or raw pixels.

PNG and CMYK files become JPEG in RGB of the highest quality, as in Inception's scripts (models/research/inception,
build_image_data.py). JPEG files in RGB are stored unchanged, unless their EXIF orientation rotates them: readers of
records, as TensorFlow, ignore it.
"""

from __future__ import annotations

import io
import warnings
from contextlib import suppress

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from hpcrun.frozen import frozen

_JPEG_QUALITY = 100
"""JPEG quality of converted images, as in Inception's scripts."""

Image.MAX_IMAGE_PIXELS = 500_000_000  # Pillow refuses twice as many, whose pixels would take 3 GB


@frozen
class EncodedImage:
    """The encoded image of a record.

    Attributes:
        data: A JPEG file, or the pixels as uint8 (height, width, channels).
        height: Height in pixels.
        width: Width in pixels.
        channels: Number of channels: 3, or 1 for grey raw pixels.
        format: Format of the data, JPEG or RAW.
        converted: Original format of a converted image, as "PNG" or "JPEG in CMYK"; else empty.
    """

    data: bytes
    height: int
    width: int
    channels: int = 3
    format: str = "JPEG"
    converted: str = ""


def encode_image(content: bytes, *, resize: int = 0, raw: bool = False, upright: bool = True) -> EncodedImage:
    """Convert the content of an image file to the encoded image of a record.

    Args:
        content: Content of a JPEG, PNG or other image file that Pillow reads.
        resize: Height and width in pixels of the result; 0 keeps the size of the image.
        raw: Whether to store pixels instead of a JPEG file.
        upright: Whether to rotate and mirror the image as its EXIF orientation says.

    Raises:
        ValueError: The content is damaged, or not an image.
    """
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(content)) as image:
            warnings.simplefilter("ignore")  # hide warnings about metadata
            colour_mode_text = "" if image.mode == "RGB" else f" in {_COLOUR_MODES.get(image.mode, image.mode)}"
            is_rotated = upright and _has_orientation(image)
            is_rgb_jpeg = image.format == "JPEG" and not colour_mode_text and not is_rotated
            keep_bytes = is_rgb_jpeg and not resize and not raw
            has_float_pixels = image.mode == "F"
            height, width = image.height, image.width
            if keep_bytes:
                # decode all data to 1/8 of height and width, which is faster and finds damage
                image.draft("RGB", (1, 1))
            image.load()
            if keep_bytes:
                return EncodedImage(content, height, width)
            pixels = _convert_to_rgb(ImageOps.exif_transpose(image) if is_rotated else image)
            rotation_text = " with an EXIF orientation" if is_rotated else ""
            original_format = "" if is_rgb_jpeg else f"{image.format}{colour_mode_text}{rotation_text}"
    except Exception as error:  # noqa: BLE001  (each of Pillow's decoders has errors of its own)
        raise ValueError(_describe_damage(content, error)) from None
    if has_float_pixels:
        raise ValueError("its pixels are floating-point numbers, whose range is unknown: convert it to 8 or 16 bits")
    if resize:
        pixels = pixels.resize((resize, resize), Image.Resampling.BILINEAR)
    if raw:
        return EncodedImage(pixels.tobytes(), pixels.height, pixels.width, 3, "RAW", original_format)
    stream = io.BytesIO()
    pixels.save(stream, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return EncodedImage(stream.getvalue(), pixels.height, pixels.width, 3, "JPEG", original_format)


_COLOUR_MODES = {"L": "grey", "1": "black and white", "P": "a palette", "LA": "grey", "RGBA": "RGBA"}


def _has_orientation(image: Image.Image) -> bool:
    """Return whether an image has to be rotated or mirrored for display, as photos of phones do."""
    with suppress(Exception):  # damaged metadata
        return "exif" in image.info and image.getexif().get(ExifTags.Base.Orientation, 1) in range(2, 9)
    return False


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit grey, which convert() would clip at 255
        return image.convert("I").point(lambda value: value / 256).convert("RGB")
    return image.convert("RGB")


def _describe_damage(content: bytes, error: Exception) -> str:
    if not content:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return "not an image that Pillow reads"
    return f"damaged image: {error}"


def decode_image(data: bytes, height: int, width: int, channels: int, *, raw: bool) -> Image.Image:
    """Return the image of a record.

    Args:
        data: Content of a JPEG or PNG file, or raw pixels as uint8 (height, width, channels).
        height: Height in pixels; used for raw pixels only.
        width: Width in pixels; used for raw pixels only.
        channels: 1 or 3; used for raw pixels only.
        raw: Whether the record has raw pixels.

    Raises:
        ValueError: The data are damaged, or do not have the given size.
    """
    if not raw:
        try:
            image = Image.open(io.BytesIO(data))
            image.load()
        except Exception as error:  # noqa: BLE001  (each of Pillow's decoders has errors of its own)
            raise ValueError(_describe_damage(data, error)) from None
        return image
    if channels not in {1, 3} or len(data) != height * width * channels:
        raise ValueError(f"{len(data)} bytes are not {height} x {width} x {channels} raw pixels")
    return Image.frombytes("L" if channels == 1 else "RGB", (width, height), data)
