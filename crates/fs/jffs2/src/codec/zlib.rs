//! Deflate in the format of zlib, by `miniz_oxide`.
//!
//! Linux does not verify the checksum at the end (`compr_zlib.c`), since the node has one. It also accepts a stream without
//! a header of zlib; so does this decoder.

use miniz_oxide::inflate::core::{DecompressorOxide, decompress as inflate, inflate_flags};

/// Fills `output`. Returns `None` if the stream is damaged or shorter.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Option<()> {
    let has_header = match *input {
        [first, second, ..] => {
            first & 0xf == 8
                && second & 0x20 == 0
                && u16::from_be_bytes([first, second]).checked_rem(31) == Some(0)
        }
        _ => false,
    };
    let header = if has_header { inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER } else { 0 };
    let flags = header
        | inflate_flags::TINFL_FLAG_IGNORE_ADLER32
        | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = DecompressorOxide::new();
    let (_, _, written) = inflate(&mut state, input, output, 0, flags);
    (written == output.len()).then_some(())
}

/// Returns the compressed `input`, or `None` if it is not shorter.
pub fn compress(input: &[u8]) -> Option<alloc::vec::Vec<u8>> {
    let output = miniz_oxide::deflate::compress_to_vec_zlib(input, 9);
    Some(output).filter(|output| output.len() < input.len())
}
