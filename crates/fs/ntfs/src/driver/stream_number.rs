//! The inode numbers of streams.

use obento_base::Ino;

/// The bit of a number that stands for a stream.
const MARK: u64 = 1 << 63;
/// Bits of the number of a record.
const RECORD_BITS: u32 = 48;
/// Most streams of a file that have numbers.
const COUNT_MAX: usize = 1 << 15;

/// Returns the number of a stream of a file.
pub fn number(file: Ino, index: usize) -> Option<Ino> {
    let index = u64::try_from(index).ok().filter(|_| index < COUNT_MAX)?;
    (file.0 >> RECORD_BITS == 0).then_some(Ino(MARK | index << RECORD_BITS | file.0))
}

/// Returns the file of a stream and the number of the stream, unless `ino` is a file.
pub fn split(ino: Ino) -> Option<(Ino, usize)> {
    let index = usize::try_from((ino.0 & !MARK) >> RECORD_BITS).ok()?;
    (ino.0 & MARK != 0).then_some((Ino(ino.0 & ((1 << RECORD_BITS) - 1)), index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_identify_file_and_stream() {
        for (file, index) in [(5, 0), (0xffff_ffff_ffff, COUNT_MAX - 1), (1 << 40, 77)] {
            assert_eq!(split(number(Ino(file), index).unwrap()), Some((Ino(file), index)));
        }
        assert_eq!((number(Ino(5), COUNT_MAX), number(Ino(1 << 48), 0), split(Ino(5))), (None, None, None));
    }
}
