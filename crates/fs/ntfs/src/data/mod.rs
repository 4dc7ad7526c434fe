//! The data of files. It is in a record or in clusters. It may be compressed by the file system (LZNT1), or by the
//! filter of Windows that stores files of the system (WOF: XPRESS and LZX).

pub mod compressed;
pub mod content;
#[cfg(test)]
mod encode;
mod extent;
pub mod huffman;
pub mod lznt1;
pub mod lzx;
pub mod stream;
pub mod wof;
pub mod xpress;
