//! `cp`, `mv`, `import` and `build` where two names meet, where a name is a link, and where permissions are a list.

mod conflicts;
mod gnu;
mod lists;
mod over;
mod sources;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::call;
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

/// A folder with files of the host and images.
pub struct Bench(TempDir);

impl Bench {
    /// None where a program is missing.
    pub fn new(oracles: &[Oracle]) -> Option<Self> {
        require(oracles).then(|| Self(tempfile::tempdir().unwrap()))
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of `name` in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file of the host, and the directories on its way.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// An empty ext4 image.
    pub fn ext4(&self, name: &str, options: &[&str]) {
        let image = self.at(name);
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        call("mke2fs", [&["-q", "-F", "-t", "ext4"], options, &[image.to_str().unwrap()]].concat()).unwrap();
    }

    /// An empty image that obento makes.
    pub fn mkfs(&self, kind: &str, name: &str) {
        let _ = fs::remove_file(self.at(name));
        self.quiet(&["mkfs", "-q", "-t", kind, name, "16M"]);
    }

    /// Runs the command in the folder.
    pub fn obento(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.path()).args(args).env("TZ", "UTC0").stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `args`, and expects success without a word.
    #[track_caller]
    pub fn quiet(&self, args: &[&str]) {
        let output = self.obento(args);
        let said = (text(&output.stdout), text(&output.stderr));
        assert_eq!((output.status.code(), said), (Some(0), Default::default()), "{args:?}");
    }

    /// Runs `args`, and expects exit status 1 and a message with `words`.
    #[track_caller]
    pub fn fails(&self, args: &[&str], words: &str) {
        self.fails_with(1, args, words);
    }

    /// Expects that `args` fail with `code` and these words.
    #[track_caller]
    pub fn fails_with(&self, code: i32, args: &[&str], words: &str) {
        let output = self.obento(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }

    /// What `args` print.
    #[track_caller]
    pub fn prints(&self, args: &[&str]) -> String {
        let output = self.obento(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// Returns output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
