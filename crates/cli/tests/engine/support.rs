//! A tree of the host, images of it, and the output of GNU tools for both.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use obento_testkit::oracle::{call, shell};
pub use obento_testkit::recipes::ALL;
use obento_testkit::recipes::Recipe;
use obento_testkit::tree::pattern;
use tempfile::TempDir;

/// A folder with the tree in `tree`.
pub struct Bench(TempDir);

impl Bench {
    pub fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        bench.plant();
        bench
    }

    /// Creates a folder whose tree the type of `recipe` can store; `None` if no image can be created.
    pub fn of(recipe: &Recipe) -> Option<Self> {
        let bench = recipe.is_possible().then(Self::new)?;
        bench.shell(recipe.fit);
        Some(bench)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates files of no, few and many bytes, nested folders, a folder with several hundred entries, a
    /// link, modes and an owner. Every time is a whole second of the past, which all types can store.
    fn plant(&self) {
        let tree = self.path("tree");
        for folder in ["dir/deep/er", "many"] {
            fs::create_dir_all(tree.join(folder)).unwrap();
        }
        for (name, len) in
            [("empty", 0), ("small", 5), ("five", 5000), ("dir/big", 300_000), ("dir/deep/er/a", 1)]
        {
            fs::write(tree.join(name), pattern(len)).unwrap();
        }
        for number in 0..400 {
            fs::write(tree.join(format!("many/f{number}")), number.to_string()).unwrap();
        }
        fs::set_permissions(tree.join("small"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::set_permissions(tree.join("five"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("dir/deep", tree.join("link")).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(tree.join("five"), Some(12), Some(34)).unwrap();
        }
        self.shell("find tree -exec touch --no-dereference --date='2020-02-03 04:05:06 UTC' {} +");
    }

    /// Creates an empty file of a number of MiB.
    pub fn blank(&self, name: &str, megabytes: u64) -> PathBuf {
        let path = self.path(name);
        fs::File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
        path
    }

    /// Runs `line` in the folder, and returns its output.
    pub fn shell(&self, line: &str) -> String {
        let output = shell(self.0.path(), line).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        command.current_dir(self.0.path()).args(line.split(' ')).env_clear().env("TZ", "UTC0");
        command
    }

    pub fn obento(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Expects that `line` succeeds completely, and returns its output.
    #[track_caller]
    pub fn done(&self, line: &str) -> String {
        let output = self.obento(line);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}{complaint}");
        said
    }

    /// Compares two trees by GNU diff and find: contents, and `fields` (find(1), `-printf`) of everything
    /// except folders.
    #[track_caller]
    pub fn expect_equal(&self, found: &str, fields: &str) {
        call(
            "diff",
            [
                "-r".as_ref(),
                "--no-dereference".as_ref(),
                self.path("tree").as_os_str(),
                self.path(found).as_os_str(),
            ],
        )
        .unwrap();
        let list =
            |tree: &str| self.shell(&format!("cd {tree} && find . ! -type d -printf '{fields}\\n' | sort"));
        assert_eq!(list("tree"), list(found));
    }
}

/// Returns the type of a file, by its bytes.
pub fn digest(path: &Path) -> Vec<u8> {
    let sum = call("sha256sum", [path.as_os_str()]).unwrap().stdout;
    sum.into_iter().take(64).collect()
}
