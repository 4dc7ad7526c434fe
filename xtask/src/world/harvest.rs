//! The images and archives in a package.
//!
//! They are stored next to the package, so that the next run does not unpack again. `NAME/NUMBER` is the image as
//! distributed, `NAME/NUMBER.plain` has no compression, and `NAME/index` has a line for each.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::fetch::Source;
use super::run::{command, output, ran};

/// A test file of another project.
pub struct Item {
    /// The package, and the last two parts of the path in it.
    pub name: String,
    /// Whether the item is a volume or an archive.
    pub kind: Kind,
    /// The distributed file, with an encoding as text removed.
    pub shipped: PathBuf,
    /// The file without its compression.
    pub plain: PathBuf,
}

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A tar archive.
    Archive,
    /// A volume or a disk.
    Image,
}

impl Kind {
    const ALL: [(Self, &str); 2] = [(Self::Archive, "archive"), (Self::Image, "image")];

    fn of(bytes: &[u8], name: &str) -> Option<Self> {
        // Program sources may have the same suffixes, but contain no zeros.
        let has = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
        if is_tar(bytes) || has(&[".tar"]) {
            Some(Self::Archive)
        } else if bytes.get(3..11) == Some(b"NTFS    ")
            || bytes.len() >= 1024
                && bytes.contains(&0)
                && has(&[".img", ".iso", ".sqs", ".xfs", ".raw", "image", ".ext4"])
        {
            Some(Self::Image)
        } else {
            None
        }
    }
}

/// The length of the longest test file. A compressed file with more data was created to fill disks.
const LEN_MAX: u64 = 3 << 30;

/// Returns the items of a package, which is downloaded and unpacked once.
pub fn items(source: &Source, cache: &Path) -> Result<Vec<Item>> {
    let folder = cache.join(source.name);
    if !folder.exists() {
        let package = source.fetched(cache)?;
        let (new, unpacked) = (cache.join("new"), cache.join("unpacked"));
        for folder in [&new, &unpacked] {
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder)?;
        }
        output("bsdtar", &["-xf".as_ref(), package.as_os_str(), "-C".as_ref(), unpacked.as_os_str()])?;
        harvest(source.name, &unpacked, &new)?;
        fs::remove_dir_all(&unpacked)?;
        fs::rename(&new, &folder)?;
    }
    let index = fs::read_to_string(folder.join("index"))?;
    index.lines().map(|line| item(&folder, line).with_context(|| line.to_owned())).collect()
}

fn item(folder: &Path, line: &str) -> Result<Item> {
    let [number, kind, name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else {
        bail!("a line of an index has three words")
    };
    let kind = Kind::ALL.iter().find(|(_, word)| *word == kind).context("an index names kinds")?.0;
    let (shipped, plain) = (folder.join(number), folder.join(format!("{number}.plain")));
    let plain = if plain.exists() { plain } else { shipped.clone() };
    Ok(Item { name: name.to_owned(), kind, shipped, plain })
}

fn harvest(name: &str, unpacked: &Path, into: &Path) -> Result<()> {
    let (mut files, mut left) = (Vec::new(), vec![unpacked.to_owned()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder)? {
            let (path, kind) =
                (entry.as_ref().map(fs::DirEntry::path), entry.as_ref().map(fs::DirEntry::file_type));
            let (Ok(path), Ok(kind)) = (path, kind) else { continue };
            match kind? {
                kind if kind.is_dir() => left.push(path),
                kind if kind.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    let mut index = String::new();
    for path in files {
        let number = index.lines().count().to_string();
        let shipped = into.join(&number);
        let word = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (folder, file) = (path.parent().map(word).unwrap_or_default(), word(&path));
        let Some(file) = without_text(&path, &file, &shipped)? else { continue };
        let plain = into.join(format!("{number}.plain"));
        let end = unpack(&shipped, &plain, &file)?;
        let bytes = fs::read(if plain.exists() { &plain } else { &shipped })?;
        match Kind::of(&bytes, end) {
            Some(kind) => {
                let word = Kind::ALL.iter().find(|(known, _)| *known == kind).map_or("", |(_, word)| *word);
                index += &format!("{number} {word} {name}/{folder}/{file}\n");
            }
            None => {
                let _ = (fs::remove_file(&shipped), fs::remove_file(&plain));
            }
        }
    }
    fs::write(into.join("index"), index)?;
    Ok(())
}

/// Writes a file to `shipped` without its encoding as text, which the suffix names, and returns its name without that
/// suffix. Returns `None` for a text.
fn without_text(path: &Path, name: &str, shipped: &Path) -> Result<Option<String>> {
    let bytes = fs::read(path)?;
    if let Some(name) = name.strip_suffix(".uu") {
        let Some(bytes) = uudecoded(&String::from_utf8_lossy(&bytes)) else { return Ok(None) };
        fs::write(shipped, bytes)?;
        return Ok(Some(name.to_owned()));
    }
    if let Some(name) = name.strip_suffix(".xxd") {
        let is_done = ran("xxd", &["-r".as_ref(), path.as_os_str(), shipped.as_os_str()])?.status.success();
        return Ok(is_done.then(|| format!("{name}.img")));
    }
    if bytes.contains(&0) || name.ends_with(".tar") {
        fs::copy(path, shipped)?;
        return Ok(Some(name.to_owned()));
    }
    Ok(None)
}

/// The compressions that both obento and a Debian program support: first bytes, suffixes, and the program.
const PACKED: [(&[u8], &[&str], &str); 4] = [
    (b"\x1f\x8b", &[".gz", ".tgz"], "gzip"),
    (b"\xfd7zXZ\0", &[".xz", ".txz"], "xz"),
    (b"\x28\xb5\x2f\xfd", &[".zst", ".tzst"], "zstd"),
    (b"BZh", &[".bz2", ".tbz2", ".tbz"], "bzip2"),
];

/// Decompresses `shipped` if it is compressed, and returns the name without the suffix.
fn unpack<'n>(shipped: &Path, plain: &Path, name: &'n str) -> Result<&'n str> {
    let start = fs::read(shipped)?;
    let Some((_, endings, program)) = PACKED.iter().find(|(mark, ..)| start.starts_with(mark)) else {
        return Ok(name);
    };
    // A file that cannot be decompressed to its end is compared up to that point.
    let line = format!(
        "{program} -dc <\"$0\" 2>/dev/null | head -c {LEN_MAX} | cp --sparse=always /dev/stdin \"$1\""
    );
    command("sh", &["-c".as_ref(), line.as_ref(), shipped.as_os_str(), plain.as_os_str()]).status()?;
    Ok(endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name))
}

/// Returns whether the bytes begin with a tar header with a valid checksum. Source: POSIX.1-2017, pax, "ustar
/// Interchange Format".
fn is_tar(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..512) else { return false };
    let reported = std::str::from_utf8(&header[148..156]).ok().and_then(|text| {
        u64::from_str_radix(text.trim_matches(|letter: char| letter == '\0' || letter == ' '), 8).ok()
    });
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(at, byte)| u64::from(if (148..156).contains(&at) { b' ' } else { *byte }))
        .sum();
    reported == Some(sum)
}

/// Decodes the lines of uuencode(1): a length, and three bytes in four letters each.
fn uudecoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let lines = text.lines().skip_while(|line| !line.starts_with("begin ")).skip(1);
    for line in lines.take_while(|line| *line != "end") {
        let six = |letter: u8| u32::from(letter.wrapping_sub(b' ') & 0x3f);
        let (len, letters) = line.as_bytes().split_first()?;
        let len = out.len() + usize::try_from(six(*len)).ok()?;
        for four in letters.chunks(4) {
            let bits = (0..4).fold(0, |bits, at| bits << 6 | four.get(at).map_or(0, |letter| six(*letter)));
            out.extend(&bits.to_be_bytes()[1..]);
        }
        out.resize(len, 0);
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_uuencode_is_decoded() {
        assert_eq!(uudecoded("text\nbegin 644 name\n#0V%T\n`\nend\n").as_deref(), Some(&b"Cat"[..]));
        // Missing bytes at the end of a line are zeros, like spaces that an editor removed.
        assert_eq!(uudecoded("begin 644 name\n%0V%T\nend\n").as_deref(), Some(&b"Cat\0\0"[..]));
        assert_eq!(uudecoded("no file"), None);
    }

    #[test]
    fn an_archive_is_known_by_the_sum_of_its_first_header() {
        let mut header = vec![0; 1024];
        header[..4].copy_from_slice(b"name");
        header[148..156].copy_from_slice(b"0001241\0");
        assert!(is_tar(&header));
        header[0] = b'N';
        assert!(!is_tar(&header));
        assert!(!is_tar(&[0; 512]) && !is_tar(b"short"));
    }
}
