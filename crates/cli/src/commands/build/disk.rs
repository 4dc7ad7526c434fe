//! `obento build --disk`: the image of a whole disk.

use std::fs::File;
use std::io::{Error, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use obento::base::{NameBuf, Quantity};
use obento::build::{
    DiskReport, DiskSettings, FillReport, PartitionContent, build_disk, build_disk_verified,
};
use obento::host::HostDir;
use obento::partition::{DiskId, PartitionType};
use obento::text::{human_size, uuid_text};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::confine::confine_filled;
use super::{Args, BuildDisplay, engine, failed, layout, warn_of_lists};
use crate::commands::cp::report_losses;
use crate::context::Context;
use crate::json::{Line, hex};
use crate::output::{Outcome, Output, not_written};
use crate::report::{Report, printable};

/// Builds the disk that the file `layout` describes.
pub(super) fn make(args: &Args, layout: &Path, context: &Context) -> Outcome {
    let shown = args.out().as_os_str().as_bytes();
    let mut settings = layout::read(layout, args.threads, context)?;
    settings.publish = args.publish();
    settings.container = args.container()?;
    refuse(args, &settings)?;
    let root_hash =
        args.root_hash.as_deref().map(|path| RootHashFile::create(path, args, &settings)).transpose()?;
    confine(args, &mut settings, context)?;
    let start = Instant::now();
    let mut watch = BuildDisplay::new(context);
    let built = match args.verify {
        true => build_disk_verified(args.out(), &settings, context.registry(), &mut watch),
        false => build_disk(args.out(), &settings, context.registry(), &mut watch),
    };
    drop(watch);
    let report = match built {
        Ok(report) => report,
        Err(failure) => return failed(failure, shown, None, context),
    };
    for partition in &report.partitions {
        let name = [shown, format!("@{}", partition.number).as_bytes()].concat();
        let print = |notes: &[String]| notes.iter().for_each(|note| context.note(&name, note));
        if let Some(volume) = &partition.volume {
            crate::commands::mkfs::notes(&name, &volume.formatted, context);
            print(&volume.notes);
            warn_of_lists(&volume.lost, context);
        }
        if let Some(filled) = &partition.filled {
            report_losses(&filled.written, &name, false, context);
            print(&filled.notes);
            warn_of_lists(&filled.lost, context);
        }
    }
    if let Some(file) = root_hash {
        file.write(&report)?;
    }
    let mut out = Output::stdout();
    if context.json() {
        json(args, &report, start.elapsed(), &mut out)?;
    } else if !args.quiet {
        text(&mut out, shown, &report, start.elapsed())?;
    }
    out.finish()
}

/// The file of `--root-hash`, which is opened before rights are given up. The file is empty until the build
/// succeeds. If the build fails, a new file is removed.
struct RootHashFile<'a> {
    path: &'a Path,
    file: File,
    /// The directory and the name of a new file that is not complete.
    unfinished: Option<(HostDir, NameBuf)>,
}

impl<'a> RootHashFile<'a> {
    /// Creates the file, or empties the existing file with `--force`.
    ///
    /// # Errors
    ///
    /// - The layout does not have exactly one hash tree.
    /// - A symbolic link of another user leads to the file.
    /// - The file exists or cannot be created.
    fn create(path: &'a Path, args: &Args, settings: &DiskSettings) -> Result<Self, Report> {
        let shown = path.as_os_str().as_bytes();
        let is_tree = |content: &&PartitionContent| matches!(content, PartitionContent::Verity { .. });
        if contents(settings).filter(is_tree).count() != 1 {
            let cause = "the layout must have exactly one partition with a hash tree";
            return Err(Report::on("cannot write the root hash to", shown, cause)
                .help("--json prints the root hashes of all partitions"));
        }
        let (dir, name) = HostDir::open_parent(path).map_err(|error| not_written(path, error))?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(&dir, name.as_bytes(), flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Self { path, file: file.into(), unfinished: Some((dir, name)) }),
            Err(Errno::EXIST) if args.force => {
                let file = dir.open_output(&name, 0o666).map_err(|error| not_written(path, error))?;
                let failed = |error| Report::on("cannot write to", shown, error);
                if file.metadata().map_err(failed)?.is_file() {
                    file.set_len(0).map_err(failed)?;
                }
                Ok(Self { path, file, unfinished: None })
            }
            Err(Errno::EXIST) => {
                Err(Report::on("cannot create", shown, "file exists").help("use --force to overwrite it"))
            }
            Err(errno) => Err(Report::on("cannot create", shown, Error::from(errno))),
        }
    }

    /// Writes the root hash, as `veritysetup --root-hash-file` reads it.
    fn write(mut self, report: &DiskReport) -> Result<(), Report> {
        let root = report.partitions.iter().find_map(|partition| partition.root_hash).unwrap_or_default();
        let shown = self.path.as_os_str().as_bytes();
        let written = self.file.write_all(hex(&root).as_bytes());
        written.map_err(|error| Report::on("cannot write", shown, error))?;
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for RootHashFile<'_> {
    fn drop(&mut self) {
        if let Some((dir, name)) = &self.unfinished {
            // If the file cannot be removed, it stays empty.
            let _ = rustix::fs::unlinkat(dir, name.as_bytes(), AtFlags::empty());
        }
    }
}

/// Fails if two builds would differ.
fn refuse(args: &Args, settings: &DiskSettings) -> Result<(), Report> {
    let is_filled = |content: &&PartitionContent| matches!(content, PartitionContent::Filled { .. });
    let filled = contents(settings).find(is_filled).and_then(PartitionContent::tree);
    match filled.filter(|_| args.verify) {
        Some((_, settings)) => Err(engine::differs(&format!("the program of {}", settings.fs_type))),
        None => Ok(()),
    }
}

fn contents(settings: &DiskSettings) -> impl Iterator<Item = &PartitionContent> + Clone {
    settings.partitions.iter().map(|partition| &partition.content)
}

/// Gives up the rights that no partition needs. Fails if no kernel can open the file system of a partition.
fn confine(args: &Args, settings: &mut DiskSettings, context: &Context) -> Result<(), Report> {
    let plain = settings.clone();
    let sources = contents(&plain).filter_map(PartitionContent::tree).flat_map(|(sources, _)| sources);
    let files = contents(&plain).filter_map(|content| match content {
        PartitionContent::Raw(path) => Some(path.as_path()),
        _ => None,
    });
    let trees = contents(&plain).filter_map(PartitionContent::tree);
    let files = files.chain(plain.blobs.iter().map(|blob| blob.path.as_path()));
    let files = files.chain(trees.flat_map(|(_, settings)| settings.contents.iter().map(PathBuf::as_path)));
    let partitions = settings.partitions.iter_mut();
    let mut makers: Vec<_> = partitions
        .filter_map(|partition| match &mut partition.content {
            PartitionContent::Filled { settings, maker, .. } => {
                Some((context.registry().engine_type(&settings.fs_type)?, maker))
            }
            _ => None,
        })
        .collect();
    let outs: Vec<&Path> = [Some(args.out()), args.root_hash.as_deref()].into_iter().flatten().collect();
    confine_filled(&mut makers, &outs, sources, files, context)
        .map_err(|error| Report::on("cannot build", args.out().as_os_str().as_bytes(), error))
}

fn scheme(report: &DiskReport) -> &'static str {
    match report.id {
        DiskId::Guid(_) => "GPT",
        DiskId::Signature(_) => "MBR",
    }
}

fn text(out: &mut Output, shown: &[u8], report: &DiskReport, time: Duration) -> std::io::Result<()> {
    out.write_name(shown)?;
    let (len, secs) = (human_size(report.len), time.as_secs_f64());
    writeln!(out, ": {} {}, {len} in {secs:.2} s", scheme(report), report.id)?;
    for partition in &report.partitions {
        let len = human_size(partition.range.end - partition.range.start);
        write!(out, "  {} {} {len}", partition.number, partition.kind)?;
        if !partition.name.is_empty() {
            write!(out, " '{}'", printable(partition.name.as_bytes()))?;
        }
        if let Some(volume) = &partition.volume {
            let (files, moved) = (Quantity::new(volume.files, "file"), human_size(volume.bytes));
            write!(out, ": {}", volume.formatted.fs_type)?;
            if let Some(id) = crate::commands::mkfs::id_text(&volume.formatted) {
                write!(out, " {id}")?;
            }
            write!(out, ", {files} with {moved}")?;
        }
        if let Some(FillReport { probe, written, .. }) = &partition.filled {
            write!(out, ": {}", probe.fs_type)?;
            if let Some(uuid) = probe.uuid {
                write!(out, " {}", uuid_text(uuid))?;
            }
            write!(out, ", {} files with {}", engine::files(written), human_size(written.bytes))?;
        }
        if let Some(root) = partition.root_hash {
            write!(out, ": verity, root hash {}", hex(&root))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn json(args: &Args, report: &DiskReport, time: Duration, out: &mut Output) -> std::io::Result<()> {
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Line::new("built_disk")
        .bytes("path", args.out().as_os_str().as_bytes())
        .field("table", scheme(report).to_lowercase())
        .field("uuid", report.id.to_string())
        .field("size", report.len)
        .field("milliseconds", millis)
        .field("verified", args.verify)
        .write(out)?;
    for partition in &report.partitions {
        let line = Line::new("built_partition")
            .field("number", partition.number)
            .field("type", partition.kind.to_string())
            .field("name", &partition.name)
            .field("start", partition.range.start)
            .field("size", partition.range.end - partition.range.start);
        let line = match partition.kind {
            PartitionType::Gpt(_) => line.field("partition_uuid", partition.uuid.to_string()),
            PartitionType::Mbr(_) => line,
        };
        let line = match (&partition.volume, &partition.filled) {
            (Some(volume), _) => super::volume_fields(line, volume),
            (None, Some(filled)) => engine::filled_fields(line, filled),
            (None, None) => line,
        };
        let line = match partition.root_hash {
            Some(root) => line.field("root_hash", hex(&root)),
            None => line,
        };
        line.write(out)?;
    }
    Ok(())
}
