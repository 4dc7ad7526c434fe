//! The options of `prov`.

use std::ffi::OsString;

use clap::ValueEnum;

use super::select::Who;

/// Show which programs created, read and changed files of a volume
///
/// A volume has this history if it was mounted with `-o provenance`. Without options, all records are listed, the newest
/// first. With --of, a tree shows the sources of a file: all files that a program had opened for reading when it wrote the
/// file. The program may have ignored some of them, so a source is possible, not certain. The image is not changed.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The image, or the directory at which it is mounted
    #[arg(value_name = "IMAGE[@PART]|DIR")]
    pub image: OsString,
    /// Show the sources of the file PATH, and the programs that wrote them
    #[arg(long, value_name = "PATH", conflicts_with_all = ["by", "since", "changed_since", "export"])]
    pub of: Option<OsString>,
    /// With --of: show the sources of the file (the default)
    #[arg(long, requires = "of", conflicts_with = "forward")]
    pub back: bool,
    /// With --of: show the files that may contain data of the file
    #[arg(long, requires = "of")]
    pub forward: bool,
    /// Draw the tree with ASCII characters
    #[arg(long, requires = "of")]
    pub ascii: bool,
    /// Show only records of a process: a process ID, the name of a program, or uid=UID
    #[arg(long, value_name = "PROCESS")]
    pub by: Option<Who>,
    /// Show only records from TIME on: '2026-11-21 13:48', @1795268933, '3 days ago'
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub since: Option<String>,
    /// Show at most N records, or with --of at most N lines of the tree. Without this option, a tree has at most 10000
    /// lines and 256 levels
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
    /// Print the paths of files that changed in record number SEQUENCE or later, for an incremental backup
    #[arg(long, value_name = "SEQUENCE", conflicts_with_all = ["by", "since", "export", "lines"])]
    pub changed_since: Option<u64>,
    /// With --changed-since: end each path with a NUL
    #[arg(short = '0', long, requires = "changed_since")]
    pub null: bool,
    /// Write all records as a graph to standard output
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["by", "since", "lines"])]
    pub export: Option<ExportFormat>,
}

/// A format of other programs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExportFormat {
    /// W3C PROV-JSON
    ProvJson,
    /// OpenLineage events, one per line
    Openlineage,
    /// The graph language of Graphviz
    Dot,
}

impl Args {
    /// Returns the operand.
    pub fn image_bytes(&self) -> Vec<u8> {
        std::os::unix::ffi::OsStrExt::as_bytes(self.image.as_os_str()).to_vec()
    }
}
