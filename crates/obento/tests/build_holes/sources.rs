//! Writes one tree of files as every kind of source.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use obento::build::{BuildSource, Input};
use obento_testkit::mutants::Random;
use sha2::{Digest as _, Sha256};

use crate::files::{Sketch, data_on_host};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Directory,
    Added,
    AddedOneByOne,
    Tar,
    Gzip,
    Pipe,
    PipedGzip,
    Layer,
    OciLayout,
    Mtree,
    Dump,
}

pub const KINDS: [Kind; 11] = [
    Kind::Directory,
    Kind::Added,
    Kind::AddedOneByOne,
    Kind::Tar,
    Kind::Gzip,
    Kind::Pipe,
    Kind::PipedGzip,
    Kind::Layer,
    Kind::OciLayout,
    Kind::Mtree,
    Kind::Dump,
];

/// The expected file in an image.
pub struct Expected {
    pub path: String,
    pub content: Vec<u8>,
    /// The data ranges of the source, or `None` if the source does not store them.
    pub data: Option<Vec<Range<u64>>>,
}

/// A source on the host.
pub struct Made {
    pub sources: Vec<BuildSource>,
    pub expected: Vec<Expected>,
    /// The thread that feeds a pipe.
    pub feeder: Option<JoinHandle<()>>,
}

/// Writes `tree` as a source of `kind` into `folder`.
pub fn make(random: &mut Random, kind: Kind, tree: &[Sketch], folder: &Path) -> Made {
    let root = folder.join("tree");
    fs::create_dir_all(root.join("d")).unwrap();
    match kind {
        Kind::Directory | Kind::Added | Kind::AddedOneByOne | Kind::Mtree | Kind::Dump => {
            tree.iter().for_each(|file| file.write(&root).unwrap());
            let expected = tree.iter().map(|file| Expected {
                path: file.path.clone(),
                content: file.content(),
                data: data_on_host(&root.join(&file.path)),
            });
            let expected: Vec<_> = expected.collect();
            Made { sources: of_host(kind, tree, folder, &root), expected, feeder: None }
        }
        _ => {
            let archive = Archive::of(random, tree);
            let path = folder.join("tree.tar");
            let bytes = match kind {
                Kind::Gzip | Kind::PipedGzip => packed(&archive.bytes),
                _ => archive.bytes,
            };
            let (source, feeder) = of_archive(kind, &path, bytes, folder);
            Made { sources: vec![source], expected: archive.expected, feeder }
        }
    }
}

fn of_host(kind: Kind, tree: &[Sketch], folder: &Path, root: &Path) -> Vec<BuildSource> {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    match kind {
        Kind::Directory => vec![BuildSource::Directory(root.into())],
        Kind::Added => vec![BuildSource::Add { from: root.into(), to: b"/".to_vec() }],
        Kind::AddedOneByOne => {
            let one = |file: &Sketch| BuildSource::Add {
                from: root.join(&file.path),
                to: format!("/{}", file.path).into_bytes(),
            };
            tree.iter().map(one).collect()
        }
        Kind::Mtree => vec![BuildSource::Mtree(write("tree.mtree", mtree(tree)))],
        _ => vec![BuildSource::Dump(write("tree.dump", dump(tree)))],
    }
}

fn of_archive(
    kind: Kind,
    path: &Path,
    bytes: Vec<u8>,
    folder: &Path,
) -> (BuildSource, Option<JoinHandle<()>>) {
    let input = Input::File(path.into());
    match kind {
        Kind::Pipe | Kind::PipedGzip => {
            use rustix::fs::{CWD, Mode, mkfifoat};
            mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
            let path = path.to_path_buf();
            let feed = move || {
                let mut pipe = File::options().write(true).open(path).unwrap();
                pipe.write_all(&bytes).unwrap();
            };
            (BuildSource::Archive(input), Some(std::thread::spawn(feed)))
        }
        Kind::OciLayout => (BuildSource::OciLayout(oci(folder, bytes)), None),
        _ => {
            fs::write(path, bytes).unwrap();
            let source =
                if kind == Kind::Layer { BuildSource::Layer(input) } else { BuildSource::Archive(input) };
            (source, None)
        }
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn oci(folder: &Path, layer: Vec<u8>) -> PathBuf {
    let layout = folder.join("layout");
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    let blob = |bytes: &[u8]| {
        let sum: String = Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        fs::write(layout.join("blobs/sha256").join(&sum), bytes).unwrap();
        format!("{{\"digest\":\"sha256:{sum}\",\"size\":{}}}", bytes.len())
    };
    let layer = blob(&layer);
    let manifest = blob(format!("{{\"layers\":[{layer}]}}").as_bytes());
    fs::write(layout.join("index.json"), format!("{{\"manifests\":[{manifest}]}}")).unwrap();
    fs::write(layout.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
    layout
}

fn mtree(tree: &[Sketch]) -> String {
    let mut all = String::from("#mtree\n./d type=dir mode=755 uid=0 gid=0 time=5.0\n");
    for file in tree {
        let (path, size) = (&file.path, file.size());
        let _ = writeln!(
            all,
            "./{path} type=file mode=644 uid=0 gid=0 time=6.0 size={size} contents=tree/{path}"
        );
    }
    all
}

/// Short files without zeros have their bytes in the manifest.
fn dump(tree: &[Sketch]) -> String {
    let mut all = String::from("/ 0 40755 2 0 0 0 5.0 - - -\n/d 0 40755 2 0 0 0 5.0 - - -\n");
    for file in tree {
        let (path, size) = (&file.path, file.size());
        let (payload, content) = match size {
            0 => ("-".to_owned(), "-".to_owned()),
            1..100 => ("-".to_owned(), file.content().iter().map(|byte| format!("\\x{byte:02x}")).collect()),
            _ => (format!("tree/{path}"), "-".to_owned()),
        };
        let _ = writeln!(all, "/{path} {size} 100644 1 0 0 0 6.0 {payload} {content} -");
    }
    all
}

/// A tar archive, some of whose members have a map of their holes.
struct Archive {
    bytes: Vec<u8>,
    expected: Vec<Expected>,
}

impl Archive {
    fn of(random: &mut Random, tree: &[Sketch]) -> Self {
        let mut this = Self { bytes: Vec::new(), expected: Vec::new() };
        this.header("d/", 0, b'5');
        for file in tree {
            let (content, data) = (file.content(), file.data());
            let whole = 0..file.size();
            let has_map = data != [whole.clone()] && random.below(4) > 0;
            let path = file.path.clone();
            match has_map {
                true => this.sparse(&path, &content, &data),
                false => {
                    this.header(&path, file.size(), b'0');
                    this.data(&content);
                }
            }
            let data = if has_map {
                data
            } else {
                Some(whole).filter(|whole| !whole.is_empty()).into_iter().collect()
            };
            this.expected.push(Expected { path, content, data: Some(data) });
        }
        this.bytes.extend([0; 1024]);
        this
    }

    /// Adds a member in GNU's sparse format 1.0: the map is in lines before the data.
    fn sparse(&mut self, path: &str, content: &[u8], data: &[Range<u64>]) {
        let mut map = format!("{}\n", data.len());
        data.iter().for_each(|range| {
            let _ = write!(map, "{}\n{}\n", range.start, range.end - range.start);
        });
        let mut stored = map.into_bytes();
        stored.resize(stored.len().next_multiple_of(512), 0);
        data.iter().for_each(|range| {
            stored.extend_from_slice(&content[range.start as usize..range.end as usize]);
        });
        let size = content.len().to_string();
        let mut records = String::new();
        for (key, value) in [("major", "1"), ("minor", "0"), ("name", path), ("realsize", size.as_str())] {
            // The length includes its own digits. No record here has fewer than ten bytes, or more than 99.
            let line = format!(" GNU.sparse.{key}={value}\n");
            let _ = write!(records, "{}{line}", line.len() + 2);
        }
        self.header("records", records.len() as u64, b'x');
        self.data(records.as_bytes());
        self.header("GNUSparseFile.0/f", stored.len() as u64, b'0');
        self.data(&stored);
    }

    fn data(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }

    fn header(&mut self, name: &str, size: u64, kind: u8) {
        let mut block = [0; 512];
        let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, if kind == b'5' { b"0000755\0" } else { b"0000644\0" });
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        put(136, b"00000000006\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend(block);
    }
}
