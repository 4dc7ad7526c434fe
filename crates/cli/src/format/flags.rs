//! Flags of files as the letters and words of lsattr and chattr.
//!
//! Source: e2fsprogs, lib/e2p/pf.c `flags_array`, for the order; chattr(1).

use obento::base::FileFlags;

/// The flags in the order of lsattr.
const FLAGS: [(FileFlags, char, &str); 22] = [
    (FileFlags::SECURE_DELETE, 's', "Secure_Deletion"),
    (FileFlags::UNDELETE, 'u', "Undelete"),
    (FileFlags::SYNC, 'S', "Synchronous_Updates"),
    (FileFlags::DIR_SYNC, 'D', "Synchronous_Directory_Updates"),
    (FileFlags::IMMUTABLE, 'i', "Immutable"),
    (FileFlags::APPEND, 'a', "Append_Only"),
    (FileFlags::NO_DUMP, 'd', "No_Dump"),
    (FileFlags::NO_ATIME, 'A', "No_Atime"),
    (FileFlags::COMPRESS, 'c', "Compression_Requested"),
    (FileFlags::ENCRYPTED, 'E', "Encrypted"),
    (FileFlags::JOURNAL_DATA, 'j', "Journaled_Data"),
    (FileFlags::INDEX, 'I', "Indexed_directory"),
    (FileFlags::NO_TAIL, 't', "No_Tailmerging"),
    (FileFlags::TOP_DIR, 'T', "Top_of_Directory_Hierarchies"),
    (FileFlags::EXTENTS, 'e', "Extents"),
    (FileFlags::NO_COW, 'C', "No_COW"),
    (FileFlags::DAX, 'x', "DAX"),
    (FileFlags::CASEFOLD, 'F', "Casefold"),
    (FileFlags::INLINE_DATA, 'N', "Inline_Data"),
    (FileFlags::PROJECT_INHERIT, 'P', "Project_Hierarchy"),
    (FileFlags::VERITY, 'V', "Verity"),
    (NO_COMPRESS, 'm', "Dont_Compress"),
];

/// `FS_NOCOMP_FL` of include/uapi/linux/fs.h.
const NO_COMPRESS: FileFlags = FileFlags::from_bits_retain(0x400);

/// Returns the letters: `----i---------e-------`.
pub fn letters(flags: FileFlags) -> String {
    FLAGS.iter().map(|(flag, letter, _)| if flags.contains(*flag) { *letter } else { '-' }).collect()
}

/// Returns the words: `Immutable, Extents`, or `---` for none.
pub fn words(flags: FileFlags) -> String {
    let set: Vec<_> =
        FLAGS.iter().filter(|(flag, ..)| flags.contains(*flag)).map(|(.., word)| *word).collect();
    if set.is_empty() { "---".to_owned() } else { set.join(", ") }
}

/// Returns the flag of a letter.
pub fn by_letter(letter: char) -> Option<FileFlags> {
    FLAGS.iter().find(|(_, known, _)| *known == letter).map(|(flag, ..)| *flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_read_as_lsattr_writes_them() {
        assert_eq!(letters(FileFlags::INDEX | FileFlags::EXTENTS), "-----------I--e-------");
        assert_eq!(words(FileFlags::IMMUTABLE | FileFlags::EXTENTS), "Immutable, Extents");
        assert_eq!((letters(FileFlags::empty()).len(), words(FileFlags::empty()).as_str()), (22, "---"));
        assert_eq!((by_letter('P'), by_letter('q')), (Some(FileFlags::PROJECT_INHERIT), None));
    }
}
