//! The data of files: in a record, in clusters, compressed by the file system (LZNT1), or compressed by the filter of
//! Windows that stores files of the system (WOF: XPRESS and LZX).

pub mod compressed;
pub mod content;
#[cfg(test)]
mod encode;
pub mod huffman;
pub mod lznt1;
pub mod lzx;
pub mod stream;
pub mod wof;
pub mod xpress;
