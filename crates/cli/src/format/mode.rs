//! Mode strings such as `drwxr-xr-x`, and the names of file types in coreutils.

use obento::base::{FileKind, Mode};

/// Returns the type and permissions as `ls -l` shows them.
pub fn mode_string(kind: FileKind, mode: Mode) -> [u8; 10] {
    let bits = mode.bits();
    let mut text = *b"-rwxrwxrwx";
    text[0] = kind_letter(kind);
    for (at, letter) in text.iter_mut().enumerate().skip(1) {
        if bits & (0o400 >> (at - 1)) == 0 {
            *letter = b'-';
        }
    }
    for (special, at, letter) in [(Mode::SET_UID, 3, b's'), (Mode::SET_GID, 6, b's'), (Mode::STICKY, 9, b't')]
    {
        if mode.contains(special) {
            text[at] = if text[at] == b'x' { letter } else { letter.to_ascii_uppercase() };
        }
    }
    text
}

/// Returns the first letter of the mode string.
pub fn kind_letter(kind: FileKind) -> u8 {
    match kind {
        FileKind::Regular => b'-',
        FileKind::Directory => b'd',
        FileKind::Symlink => b'l',
        FileKind::CharDevice => b'c',
        FileKind::BlockDevice => b'b',
        FileKind::Fifo => b'p',
        FileKind::Socket => b's',
    }
}

/// Returns the name of the type in the output of `stat`.
pub fn kind_name(kind: FileKind, size: u64) -> &'static str {
    match kind {
        FileKind::Regular if size == 0 => "regular empty file",
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character special file",
        FileKind::BlockDevice => "block special file",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// Returns the reason why a file of the type `kind` is not read as a regular file.
pub fn not_regular(kind: FileKind) -> String {
    let kind = match kind {
        FileKind::Regular => "a regular file",
        FileKind::Directory => return "is a directory".to_owned(),
        FileKind::Symlink => "a symbolic link",
        FileKind::CharDevice => "a character device",
        FileKind::BlockDevice => "a block device",
        FileKind::Fifo => "a FIFO",
        FileKind::Socket => "a socket",
    };
    format!("is {kind}, not a regular file")
}

/// Returns one word for a type, for JSON.
pub fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// Returns the character that `ls -F` appends to a name.
pub fn classify(kind: FileKind, mode: Mode) -> Option<u8> {
    match kind {
        FileKind::Directory => Some(b'/'),
        FileKind::Symlink => Some(b'@'),
        FileKind::Fifo => Some(b'|'),
        FileKind::Socket => Some(b'='),
        FileKind::Regular if mode.bits() & 0o111 != 0 => Some(b'*'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_bits_replace_the_execute_letters() {
        for (kind, mode, expected) in [
            (FileKind::Regular, 0o644, "-rw-r--r--"),
            (FileKind::Directory, 0o1777, "drwxrwxrwt"),
            (FileKind::Regular, 0o4755, "-rwsr-xr-x"),
            (FileKind::Regular, 0o7000, "---S--S--T"),
            (FileKind::BlockDevice, 0o660, "brw-rw----"),
        ] {
            assert_eq!(str::from_utf8(&mode_string(kind, Mode::new(mode))).unwrap(), expected);
        }
    }
}
