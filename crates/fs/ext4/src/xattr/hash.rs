//! The hashes of attributes, and of whole blocks of them.
//!
//! Source: Linux fs/ext4/xattr.c `ext4_xattr_hash_entry`, `ext4_xattr_hash_entry_signed`, `ext4_xattr_rehash`.

/// Returns the hash of an entry, of its name and its value as [`words`].
pub(crate) fn entry_hash(name: &[u8], value: impl Iterator<Item = u32>) -> u32 {
    fold(name.iter().map(|&byte| byte.into()), value)
}

/// Returns [`entry_hash`] as in old kernels on machines with signed characters.
pub(crate) fn signed_entry_hash(name: &[u8], value: impl Iterator<Item = u32>) -> u32 {
    fold(name.iter().map(|&byte| i32::from(byte.cast_signed()).cast_unsigned()), value)
}

fn fold(name: impl Iterator<Item = u32>, value: impl Iterator<Item = u32>) -> u32 {
    let name = name.fold(0_u32, |hash, char| hash.rotate_left(5) ^ char);
    value.fold(name, |hash, word| hash.rotate_left(16) ^ word)
}

/// Returns the hash of a block from the hashes of its entries, in their order; 0 means that the block is not shared.
pub(crate) fn block_hash(mut entries: impl Iterator<Item = u32>) -> u32 {
    let hash = entries.try_fold(0_u32, |hash, entry| (entry != 0).then(|| hash.rotate_left(16) ^ entry));
    hash.unwrap_or(0)
}

/// Returns a value as little-endian words, the last one padded with zeros.
pub(crate) fn words(value: &[u8]) -> impl Iterator<Item = u32> + Clone {
    value.chunks(4).map(|chunk| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_an_entry_without_a_hash_is_never_shared() {
        assert_eq!(block_hash([1, 2].into_iter()), 0x0001_0002);
        assert_eq!(block_hash([1, 0, 2].into_iter()), 0);
        assert_eq!(block_hash([].into_iter()), 0);
    }

    #[test]
    fn the_last_word_is_filled_up_with_zeros() {
        assert!(words(&[1, 2, 3, 4, 5]).eq([0x0403_0201, 5]));
    }
}
