//! Images of ext2, ext3 and ext4 that are created by e2fsprogs and filled by the kernel, without any code of obento.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{SeekFrom, seek};

use crate::entries::{self, Entries};
use crate::oracle::{LoopMount, call, program, run};
use crate::tree::{self, TreeSpec};

/// The program that writes the tree into an image, and later reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filler {
    /// The kernel, through a loop mount.
    Kernel,
    /// `mke2fs -d`, for features with which this kernel mounts read-only or not at all.
    Mke2fs,
}

/// The description of an image.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    /// The name of the image and its file.
    pub name: &'static str,
    /// Arguments of `mke2fs`, before the image.
    pub mke2fs: Vec<&'static str>,
    /// Arguments of `tune2fs` or commands of `debugfs`, run on the empty image.
    pub tune: Vec<Tune>,
    /// Length in bytes; the file is sparse.
    pub len: u64,
    /// The tree.
    pub tree: TreeSpec,
    /// The program that writes the tree.
    pub filler: Filler,
    /// Options of mount(8) for writing the tree.
    pub mount: &'static str,
    /// A feature to remove from a copy before the kernel mounts it for the comparison. The kernel refuses the feature,
    /// but it does not change how this tree is stored.
    pub mask: Option<&'static str>,
}

/// A step between `mke2fs` and writing the tree.
#[derive(Clone, Debug)]
pub enum Tune {
    /// `tune2fs ARGS IMAGE`.
    Tune2fs(Vec<&'static str>),
    /// `debugfs -w -R COMMAND IMAGE`.
    Debugfs(&'static str),
}

impl ImageSpec {
    /// Creates the image as a file in `folder`, with its tree.
    pub fn build(&self, folder: &Path) -> Result<PathBuf> {
        let source = tempfile::tempdir()?;
        if self.filler == Filler::Mke2fs {
            tree::write(source.path(), &self.tree)?;
        }
        self.build_from(source.path(), folder)
    }

    /// Creates the image as a file in `folder`, with the tree from `source` if `mke2fs` writes it.
    pub fn build_from(&self, source: &Path, folder: &Path) -> Result<PathBuf> {
        let image = folder.join(format!("{}.img", self.name));
        File::create(&image)?.set_len(self.len)?;
        let mut mke2fs = program("mke2fs");
        mke2fs.args(["-q", "-F"]).args(&self.mke2fs);
        if self.filler == Filler::Mke2fs {
            mke2fs.arg("-d").arg(source);
        }
        run(mke2fs.arg(&image))?;
        for step in &self.tune {
            match step {
                Tune::Tune2fs(args) => run(program("tune2fs").args(args).arg(&image))?,
                Tune::Debugfs(command) => run(program("debugfs").args(["-w", "-R", command]).arg(&image))?,
            };
        }
        if self.filler == Filler::Kernel {
            let mount = LoopMount::new(&image, self.mount)?;
            tree::write(mount.path(), &self.tree)?;
            mount.unmount()?;
        }
        Ok(image)
    }
}

/// Returns the entries that the kernel finds in `image`, as GNU tar reads them from a mount. Sockets, which tar skips,
/// are added.
pub fn kernel_entries(image: &Path, spec: &ImageSpec) -> Result<Entries> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("copy.img");
    let image = match spec.mask {
        Some(feature) => {
            call("cp", ["--sparse=always".as_ref(), image.as_os_str(), copy.as_os_str()])?;
            run(program("debugfs").args(["-w", "-R", &format!("feature -{feature}")]).arg(&copy))?;
            &copy
        }
        None => image,
    };
    let mount = LoopMount::new(image, "ro")?;
    let tar = folder.path().join("tree.tar");
    tar_of(mount.path(), &tar)?;
    let entries = entries::from_tar(File::open(&tar)?)?;
    mount.unmount()?;
    Ok(entries)
}

/// Writes GNU tar's pax archive of `folder` to `tar`, with all attributes and sparse files.
pub fn tar_of(folder: &Path, tar: &Path) -> Result<()> {
    let mut command = program("tar");
    command.args([
        "--format=pax",
        "--sparse",
        "--xattrs",
        "--xattrs-include=*",
        "--sort=name",
        "--numeric-owner",
    ]);
    // tar skips a socket with a warning, and exits with 0.
    run(command.arg("-cf").arg(tar).arg("-C").arg(folder).arg(".")).map(drop)
}

/// Returns the paths of the sockets below `folder`, relative to it.
pub fn sockets(folder: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt as _;
    let files = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().flatten();
    let sockets = files.filter(|file| file.file_type().is_socket());
    sockets.filter_map(|file| file.path().strip_prefix(folder).ok().map(Path::to_owned)).collect()
}

/// Creates a small image for tests that require any real image: ext4 with default options and the tree
/// [`TreeSpec::SMALL`].
pub fn small_ext4(folder: &Path) -> Result<PathBuf> {
    ImageSpec { name: "small", ..crate::matrix::base("small", &["-t", "ext4"], TreeSpec::SMALL) }
        .build(folder)
}

/// Returns a hash of a file's length and data. Holes are skipped for speed.
pub fn file_hash(path: &Path) -> Result<String> {
    let mut hash = entries::ContentHash::default();
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        let end = seek(&file, SeekFrom::Hole(start))?;
        file.seek(io::SeekFrom::Start(start))?;
        hash.update_from(start, &mut (&mut file).take(end - start))?;
        at = end;
    }
    Ok(format!("{len}:{}", hash.finish()))
}

/// Copies an ext4 image while the kernel has it mounted, so that its journal is dirty. `busy` changes files in the
/// mount. The copy must contain the files that it synced.
pub fn dirty_copy(
    image: &Path,
    options: &str,
    copy: &Path,
    busy: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    // The periodic commit of the kernel, every 5 s, must not occur during the copy. The copy would then have the
    // journal from before the transaction, and the blocks from after it.
    let options =
        [options, "commit=3600"].into_iter().filter(|option| !option.is_empty()).collect::<Vec<_>>();
    let mount = LoopMount::new(image, &options.join(","))?;
    busy(mount.path())?;
    call("cp", ["--sparse=always".as_ref(), image.as_os_str(), copy.as_os_str()])?;
    mount.unmount()
}

/// The attributes of an inode in a directory listing of `debugfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DebugfsStat {
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Number of names.
    pub links: u32,
    /// Last change of data: the low 32 bits of the seconds.
    pub mtime: u32,
}

/// Returns the attributes of each of `inodes` according to `debugfs`.
pub fn debugfs_stats(image: &Path, inodes: &[u64]) -> Result<Vec<DebugfsStat>> {
    let commands: String = inodes.iter().map(|ino| format!("stat <{ino}>\n")).collect();
    let script = tempfile::NamedTempFile::new()?;
    fs::write(script.path(), commands)?;
    let output = run(program("debugfs").arg("-f").arg(script.path()).arg(image))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let parts = text.split("\nInode: ").skip(1);
    let stats = parts.map(parse_debugfs_stat).collect::<Option<Vec<_>>>();
    let stats = stats.with_context(|| format!("debugfs prints unexpected output:\n{text:.2000}"))?;
    ensure!(stats.len() == inodes.len(), "debugfs showed {} of {} inodes", stats.len(), inodes.len());
    Ok(stats)
}

fn parse_debugfs_stat(text: &str) -> Option<DebugfsStat> {
    let after = |label: &str| text.split(label).nth(1)?.split_whitespace().next().map(str::to_owned);
    let mtime = after("mtime: 0x")?;
    Some(DebugfsStat {
        mode: u32::from_str_radix(&after("Mode:")?, 8).ok()?,
        uid: after("User:")?.parse().ok()?,
        gid: after("Group:")?.parse().ok()?,
        size: after("Size:")?.parse().ok()?,
        links: after("Links:")?.parse().ok()?,
        mtime: u32::from_str_radix(mtime.split(':').next()?, 16).ok()?,
    })
}
