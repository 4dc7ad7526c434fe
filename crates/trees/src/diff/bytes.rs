//! Compares two images byte by byte, and describes the structures at the first difference.

use std::ops::ControlFlow;

use obento_base::Result;
use obento_block::BlockDevice;
use obento_open::Image;

use super::place::{BytePlace, place_of};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// The unit in which differences are counted in addition to bytes.
const BLOCK: usize = 4096;

/// The difference of two images.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ByteDifference {
    /// The first byte that differs, or the end of the shorter image.
    pub offset: u64,
    /// The structures at this byte in the two images. `None` for an image that has ended.
    pub places: (Option<BytePlace>, Option<BytePlace>),
    /// The number of bytes that differ. If one image is longer, its bytes after the end of the other image are
    /// included.
    pub bytes: u64,
    /// The number of blocks of 4096 bytes that contain differing bytes.
    pub blocks: u64,
    /// The lengths of both images in bytes.
    pub lens: (u64, u64),
}

impl ByteDifference {
    /// Describes the structures at the first difference. If both images have the same structure there, the
    /// description contains it once.
    pub fn place(&self) -> String {
        let text = |place: &Option<BytePlace>| place.as_ref().map_or("nothing".into(), ToString::to_string);
        let (one, other) = (text(&self.places.0), text(&self.places.1));
        if one == other { one } else { format!("{one} in the first image, {other} in the second image") }
    }
}

/// Compares the disks in two images byte by byte, after decoding all layers. Returns `None` if the disks are equal.
/// `watch` receives the number of bytes compared so far. It can end the comparison, and the result then covers the
/// bytes compared so far. Fails with the errors of the devices.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use obento::Image;
/// use obento::diff::diff_bytes;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (one, other) = (Image::open("one.img")?, Image::open("other.img")?);
/// if let Some(found) = diff_bytes(&one, &other, &mut |_| ControlFlow::Continue(()))? {
///     println!("{} bytes differ, first byte {}", found.bytes, found.offset);
/// }
/// # Ok(())
/// # }
/// ```
pub fn diff_bytes(
    one: &Image,
    other: &Image,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<ByteDifference>> {
    let Some(count) = count(&**one.device(), &**other.device(), watch)? else { return Ok(None) };
    let place = |image: &Image| (count.first < image.device().len()).then(|| place_of(image, count.first));
    Ok(Some(ByteDifference {
        offset: count.first,
        places: (place(one), place(other)),
        bytes: count.bytes,
        blocks: count.blocks,
        lens: (one.device().len(), other.device().len()),
    }))
}

/// Counts the differences of two devices.
struct Count {
    first: u64,
    bytes: u64,
    blocks: u64,
}

fn count(
    one: &dyn BlockDevice,
    other: &dyn BlockDevice,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Option<Count>> {
    let (mut a, mut b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let (least, most) = (one.len().min(other.len()), one.len().max(other.len()));
    let (mut first, mut bytes, mut blocks) = (None, 0, 0);
    let mut at = 0;
    while at < least && watch(at).is_continue() {
        let part = usize::try_from(least - at).unwrap_or(CHUNK).min(CHUNK);
        one.read_at(at, &mut a[..part])?;
        other.read_at(at, &mut b[..part])?;
        let pairs = a[..part].chunks(BLOCK).zip(b[..part].chunks(BLOCK)).enumerate();
        for (index, (a, b)) in pairs.filter(|(_, (a, b))| a != b) {
            let mut places = a.iter().zip(b).enumerate().filter(|(_, (a, b))| a != b).map(|(place, _)| place);
            let place = places.next().unwrap_or(0);
            first.get_or_insert(at + (index * BLOCK + place) as u64);
            bytes += 1 + places.count() as u64;
            blocks += 1;
        }
        at += part as u64;
    }
    if most > least {
        first.get_or_insert(least);
        bytes += most - least;
        blocks += (most - least).div_ceil(BLOCK as u64);
    }
    Ok(first.map(|first| Count { first, bytes, blocks }))
}
