//! The results file: the machine, the parameters, and every sample.
//!
//! The file is one JSON object. `version` increases when the meaning of a field changes. New fields have defaults.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use obento::base::NameBuf;
use obento::block::BlockDevice as _;
use obento::host::{AccessLimit, FreshFile, HostDir, Publish, open_input};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::error::Category;

use crate::cell::{Outcome, Sample};
use crate::error::IoContext as _;
use crate::machine::Machine;
use crate::statistics::StopRule;
use crate::workload::{Measure, Settings};
use crate::{BenchError, Result};

const FORMAT: &str = "obento-bench";
const VERSION: u32 = 1;
/// The reason why JSON of another program is not read.
const OTHER_FORMAT: &str = "the file has another format";

/// The results of a run.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Results {
    /// Always `obento-bench`.
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// The requested suite, or the names of workloads.
    pub suite: String,
    /// The start time (RFC 3339).
    pub started: String,
    /// The machine.
    pub machine: Machine,
    /// The settings of the workloads.
    pub settings: Settings,
    /// The size of each file system, in bytes.
    pub size: u64,
    /// The condition under which a cell is not repeated further.
    pub enough: StopRule,
    /// The cells, in the order of their first runs.
    pub cells: Vec<CellResult>,
}

/// The results of a cell.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CellResult {
    /// The target.
    pub target: String,
    /// The workload.
    pub workload: String,
    /// The samples.
    pub samples: Vec<Sample>,
    /// The reason why sampling ended early, unless the existing samples suffice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Outcome>,
}

impl Results {
    /// Returns results without cells, with the current time as the start.
    pub fn new(suite: &str, machine: Machine, settings: Settings, size: u64, enough: StopRule) -> Self {
        let started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let (format, suite) = (FORMAT.to_owned(), suite.to_owned());
        Self { format, version: VERSION, suite, started, machine, settings, size, enough, cells: Vec::new() }
    }

    /// Reads a results file. Fails with `Host`, `Io`, or with `Results` if the file is invalid or has a
    /// later version.
    pub fn load(path: &Path) -> Result<Self> {
        Self::read(path, open_input(path)?)
    }

    fn read(path: &Path, mut file: File) -> Result<Self> {
        let mut text = Vec::new();
        file.read_to_end(&mut text).during("read", path)?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self> {
        let wrong = |why: String| BenchError::Results { path: path.to_owned(), why };
        let results: Self = serde_json::from_slice(text).map_err(|error| wrong(unread(text, &error)))?;
        match (results.format.as_str(), results.version) {
            (FORMAT, VERSION) => Ok(results),
            (FORMAT, version) => Err(wrong(format!("version {version} is not supported"))),
            _ => Err(wrong(OTHER_FORMAT.to_owned())),
        }
    }

    /// Returns the results of a cell, and adds the cell if it is new.
    pub fn cell(&mut self, target: &str, workload: &str) -> &mut CellResult {
        let at = self.cells.iter().position(|cell| cell.target == target && cell.workload == workload);
        let at = at.unwrap_or_else(|| {
            let (target, workload) = (target.to_owned(), workload.to_owned());
            self.cells.push(CellResult { target, workload, samples: Vec::new(), ended: None });
            self.cells.len() - 1
        });
        &mut self.cells[at]
    }

    /// Returns the targets, in the order of their first runs.
    pub fn targets(&self) -> Vec<&str> {
        self.each(|cell| &cell.target)
    }

    /// Returns the workloads, in the order of their first runs.
    pub fn workloads(&self) -> Vec<&str> {
        self.each(|cell| &cell.workload)
    }

    fn each<'r>(&'r self, of: impl Fn(&'r CellResult) -> &'r str) -> Vec<&'r str> {
        let mut all = Vec::new();
        for cell in &self.cells {
            if !all.contains(&of(cell)) {
                all.push(of(cell));
            }
        }
        all
    }
}

/// The file that a run stores its results in.
///
/// A run may take hours, in which another user may change a directory of the path. Therefore the path is resolved once.
#[derive(Debug)]
pub struct ResultsFile {
    path: PathBuf,
    folder: HostDir,
    name: NameBuf,
}

impl ResultsFile {
    /// Opens the directory of the file `path`. Fails with `Host` if it does not exist, or if a symbolic link of another
    /// user leads to it.
    pub fn new(path: &Path) -> Result<Self> {
        let (folder, name) = HostDir::open_parent(path)?;
        Ok(Self { path: path.to_owned(), folder, name })
    }

    /// Returns the path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file exists. Fails with `Host`.
    pub fn exists(&self) -> Result<bool> {
        Ok(self.folder.stat(&self.name)?.is_some())
    }

    /// Reads the file. Fails as [`Results::load`] does, and with `Host` if the file is a link or a FIFO of another user.
    pub fn load(&self) -> Result<Results> {
        Results::read(&self.path, self.folder.open_input(&self.name)?)
    }

    /// Writes the file atomically, and replaces an existing one. Fails with `Host`.
    pub fn save(&self, results: &Results) -> Result<()> {
        let mut text = serde_json::to_string_pretty(results)
            .map_err(|error| BenchError::Results { path: self.path.clone(), why: error.to_string() })?;
        text.push('\n');
        let (folder, name, len) = (self.folder.clone(), self.name.clone(), text.len() as u64);
        let fresh = FreshFile::within(folder, name, &self.path, len, AccessLimit::NONE)?;
        let written = fresh.device().write_at(0, text.as_bytes());
        written.map_err(|error| io::Error::other(error.to_string())).during("write", &self.path)?;
        Ok(fresh.publish(Publish::Replace)?)
    }
}

impl CellResult {
    /// Returns the phases, with their measures.
    pub fn phases(&self) -> Vec<(&str, Measure)> {
        let first = self.samples.first();
        first
            .into_iter()
            .flat_map(|sample| &sample.phases)
            .map(|phase| (phase.name.as_str(), phase.measure))
            .collect()
    }

    /// Returns the figures of a phase, with the numbers of their rotations.
    pub fn figures(&self, phase: &str) -> Vec<(usize, f64)> {
        let of = |sample: &Sample| {
            let found = sample.phases.iter().find(|known| known.name == phase)?;
            Some((sample.rotation, found.figure()))
        };
        self.samples.iter().filter_map(of).filter(|(_, figure)| figure.is_finite()).collect()
    }
}

/// Describes why `text` is not a file of results.
fn unread(text: &[u8], error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    match error.classify() {
        _ if text.trim_ascii().is_empty() => "the file is empty".to_owned(),
        Category::Syntax => format!("the file is not JSON (line {line}, column {column})"),
        Category::Eof => format!("the file is incomplete, and ends in line {line}"),
        Category::Data if !is_of_format(text) => OTHER_FORMAT.to_owned(),
        Category::Data | Category::Io => error.to_string(),
    }
}

/// Returns whether JSON names the format of a file of results.
fn is_of_format(text: &[u8]) -> bool {
    let value = serde_json::from_slice::<Value>(text);
    value.is_ok_and(|value| value.get("format").is_some_and(|format| format == FORMAT))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::os::unix::fs::{lchown, symlink};

    use obento::host::HostError;

    use super::*;
    use crate::workload::Phase;

    /// Returns results of one workload with the phase `phase`, with these figures (operations a second) for each
    /// target.
    pub fn results(phase: &str, targets: &[(&str, &[f64])]) -> Results {
        let mut results =
            Results::new("test", Machine::default(), Settings::default(), 1 << 30, StopRule::default());
        for (target, figures) in targets {
            for (rotation, figure) in figures.iter().enumerate() {
                let phase = Phase {
                    name: phase.to_owned(),
                    measure: Measure::Rate,
                    seconds: 1.0,
                    operations: *figure as u64,
                    bytes: 0,
                    percentiles: Default::default(),
                };
                let sample = Sample {
                    rotation,
                    phases: vec![phase],
                    durable_seconds: 1.0,
                    processor_seconds: 0.5,
                    peak_memory: 1 << 20,
                    traffic: None,
                    disturbed: None,
                };
                results.cell(target, "load").samples.push(sample);
            }
        }
        results
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let written = results("", &[("a", &[1.0, 2.0]), ("b", &[3.0])]);
        let file = ResultsFile::new(&path).unwrap();
        assert!(!file.exists().unwrap());
        file.save(&results("", &[])).unwrap();
        file.save(&written).unwrap();
        assert!(file.exists().unwrap());
        assert_eq!((Results::load(&path).unwrap(), file.load().unwrap()), (written.clone(), written));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn results_stay_in_the_directory_that_was_opened_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, victim] = ["ours", "victim"].map(|name| folder.path().join(name));
        [&ours, &victim].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        let file = ResultsFile::new(&ours.join("r.json")).unwrap();
        // Another user replaces the directory during the run.
        fs::rename(&ours, folder.path().join("old")).unwrap();
        symlink(&victim, &ours).unwrap();
        file.save(&results("", &[])).unwrap();
        assert_eq!(file.load().unwrap(), Results::load(&folder.path().join("old/r.json")).unwrap());
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        if lchown(&ours, Some(12345), None).is_err() {
            return println!("skipped: only root can change the owner of a symbolic link");
        }
        let refused = ResultsFile::new(&ours.join("r.json")).unwrap_err();
        assert!(matches!(refused, BenchError::Host(HostError::ForeignLink { .. })), "{refused}");
    }

    #[test]
    fn a_file_that_is_not_a_results_file_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let other = "the file has another format";
        for (text, why) in [
            ("{", "incomplete"),
            ("{}", other),
            ("[]", other),
            (r#"{"format": "obento-bench"}"#, "missing field"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Results::load(&path).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let mut later = results("", &[]);
        later.version = 2;
        ResultsFile::new(&path).unwrap().save(&later).unwrap();
        assert!(Results::load(&path).unwrap_err().to_string().contains("version 2"));
    }
}
