//! Trees of the host, and their differences.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::Result;

use super::run::ran;

/// Longer files are compared by their length and this many bytes.
const READ_MAX: u64 = 64 << 20;

/// The entries below a folder, by path.
pub struct Tree(BTreeMap<Vec<u8>, Entry>);

#[derive(Debug)]
struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
    device: u64,
    content: u64,
    target: Vec<u8>,
    /// The first name of the file.
    first: Vec<u8>,
    xattrs: Vec<String>,
}

/// The compared properties of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Names, types and contents, for a judge that shows nothing else.
    Contents,
    /// All attributes of POSIX, and extended attributes. An entry that was changed at or after the second `since` got
    /// no time from its source; only its type is compared.
    All { since: i64 },
}

impl Tree {
    /// Reads the tree below `root`, without `lost+found`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self(BTreeMap::new());
        let (mut names, mut left) = (HashMap::new(), vec![root.to_owned()]);
        while let Some(folder) = left.pop() {
            let mut entries: Vec<_> = fs::read_dir(&folder)?.collect::<Result<_, _>>()?;
            entries.sort_by_key(fs::DirEntry::path);
            for entry in entries {
                let path = entry.path();
                let name = path.strip_prefix(root)?.as_os_str().as_bytes().to_vec();
                if name == b"lost+found" {
                    continue;
                }
                let read = Entry::read(&path)?;
                if read.kind == "directory" {
                    left.push(path);
                }
                if entry.metadata()?.nlink() > 1 {
                    names.entry(entry.metadata()?.ino()).or_insert_with(Vec::new).push(name.clone());
                }
                tree.0.insert(name, read);
            }
        }
        for mut names in names.into_values() {
            names.sort();
            for name in &names {
                let entry = tree.0.get_mut(name).filter(|entry| entry.kind != "directory");
                entry.into_iter().for_each(|entry| entry.first.clone_from(&names[0]));
            }
        }
        tree.read_xattrs(root)?;
        Ok(tree)
    }

    /// Reads the extended attributes: lines below `# file: PATH` for each file. On a mount without extended attributes,
    /// getfattr fails after printing the rest.
    fn read_xattrs(&mut self, root: &Path) -> Result<()> {
        let args = ["-Rhd", "-m", "-", "-e", "hex", "--absolute-names"].map(AsRef::as_ref);
        let said = ran("getfattr", &[&args[..], &[root.as_os_str()]].concat())?.stdout;
        let mut current = None;
        for line in String::from_utf8_lossy(&said).lines() {
            if let Some(path) = line.strip_prefix("# file: ") {
                let path = unescaped(path);
                let name =
                    path.strip_prefix(root.as_os_str().as_bytes()).and_then(|path| path.strip_prefix(b"/"));
                current = name.map(<[u8]>::to_vec);
            } else if let Some(entry) = current.as_ref().and_then(|name| self.0.get_mut(name)) {
                entry.xattrs.extend(Some(line.to_owned()).filter(|line| !line.is_empty()));
            }
        }
        self.0.values_mut().for_each(|entry| entry.xattrs.sort());
        Ok(())
    }

    /// Describes the first difference of `found` from this tree, and counts the differing entries.
    pub fn difference(&self, found: &Self, depth: Depth) -> Option<String> {
        let show = |path: &[u8]| String::from_utf8_lossy(path).replace('|', "/");
        let mut all = self.0.iter().filter_map(|(path, entry)| {
            let what = match found.0.get(path) {
                None => "is missing".to_owned(),
                Some(other) => entry.difference(other, depth)?,
            };
            Some(format!("`{}` {what}", show(path)))
        });
        let extra = found.0.keys().filter(|path| !self.0.contains_key(*path));
        let mut extra = extra.map(|path| format!("`{}` is not in the other tree", show(path)));
        let first = all.next();
        let count = all.count();
        let first = first.or_else(|| extra.next())?;
        Some(match count + extra.count() {
            0 => first,
            more => format!("{first}; {more} more"),
        })
    }
}

impl Entry {
    fn read(path: &Path) -> Result<Self> {
        let meta = path.symlink_metadata()?;
        let kind = match meta.file_type() {
            kind if kind.is_dir() => "directory",
            kind if kind.is_symlink() => "symbolic link",
            kind if kind.is_block_device() => "block device",
            kind if kind.is_char_device() => "character device",
            kind if kind.is_fifo() => "FIFO",
            kind if kind.is_socket() => "socket",
            _ => "file",
        };
        let is_file = kind == "file";
        Ok(Self {
            kind,
            mode: if kind == "symbolic link" { 0o777 } else { meta.mode() & 0o7777 },
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            size: if is_file { meta.size() } else { 0 },
            device: if kind.ends_with("device") { meta.rdev() } else { 0 },
            content: if is_file { hash(path)? } else { 0 },
            target: if kind == "symbolic link" {
                fs::read_link(path)?.as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            },
            first: Vec::new(),
            xattrs: Vec::new(),
        })
    }

    fn difference(&self, other: &Self, depth: Depth) -> Option<String> {
        if self.kind != other.kind {
            return Some(format!("is a {} and not a {}", other.kind, self.kind));
        }
        let is_content_other =
            (self.size, self.content) != (other.size, other.content) || self.target != other.target;
        if is_content_other {
            return Some(format!("has other contents: {} bytes, not {}", other.size, self.size));
        }
        let Depth::All { since } = depth else { return None };
        if self.mtime.0 >= since {
            return None;
        }
        let fields: [(&str, bool, String, String); 5] = [
            ("mode", self.mode != other.mode, format!("{:o}", other.mode), format!("{:o}", self.mode)),
            ("owner", self.owner != other.owner, format!("{:?}", other.owner), format!("{:?}", self.owner)),
            ("time", self.mtime != other.mtime, format!("{:?}", other.mtime), format!("{:?}", self.mtime)),
            ("device", self.device != other.device, other.device.to_string(), self.device.to_string()),
            ("attributes", self.xattrs != other.xattrs, other.xattrs.join(" "), self.xattrs.join(" ")),
        ];
        if self.first != other.first {
            return Some("has other names".to_owned());
        }
        let (name, _, found, expected) = fields.into_iter().find(|(_, differs, ..)| *differs)?;
        Some(format!("has the {name} {found:.200}, not {expected:.200}"))
    }
}

fn hash(path: &Path) -> Result<u64> {
    let (mut hasher, mut buffer) = (DefaultHasher::new(), vec![0; 1 << 20]);
    let mut file = File::open(path)?.take(READ_MAX);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            len => hasher.write(&buffer[..len]),
        }
    }
}

/// Decodes a path of getfattr(1), in which special bytes are escaped as `\ooo`.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, tail)) = rest.split_first() {
        let digits =
            tail.get(..3).filter(|_| *byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (out.push(byte), rest = &tail[3..]).1,
            None => (out.push(*byte), rest = tail).1,
        }
    }
    out
}
