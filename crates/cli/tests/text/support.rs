//! An image and a directory with the same files.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use obento_testkit::oracle::{program, run};
use obento_testkit::{Oracle, require};
use tempfile::TempDir;

/// A directory `tree`, and `disk.img` with the same files.
pub struct Twins(TempDir);

/// The outcome of a command that two programs must share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    pub code: Option<i32>,
    pub text: String,
}

impl Twins {
    /// Creates both from files. Returns `None` if a program is missing.
    pub fn new(programs: &[&'static str], files: &[(&str, &[u8])]) -> Option<Self> {
        Self::with(programs, "24M", |tree| {
            for (name, bytes) in files {
                let path = tree.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        })
    }

    /// Creates both from what `fill` writes.
    pub fn with(programs: &[&'static str], size: &str, fill: impl FnOnce(&Path)) -> Option<Self> {
        let programs = programs.iter().map(|name| Oracle::Program(name));
        if !require(&programs.chain([Oracle::Program("mke2fs")]).collect::<Vec<_>>()) {
            return None;
        }
        let twins = Self(tempfile::tempdir().unwrap());
        fs::create_dir(twins.tree()).unwrap();
        fill(&twins.tree());
        let options = ["-q", "-F", "-t", "ext4", "-d"];
        run(program("mke2fs").args(options).arg(twins.tree()).arg(twins.path("disk.img")).arg(size)).unwrap();
        Some(twins)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn tree(&self) -> PathBuf {
        self.path("tree")
    }

    /// Runs obento. In `args`, `@` at the start of a word is the image, as in `@/etc`.
    pub fn ours(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_obento"));
        self.run(command.args(args.iter().map(|arg| replaced(arg, "disk.img:/"))), input)
    }

    /// Runs the program `args[0]` of the host on the directory.
    pub fn theirs(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = program(args[0]);
        self.run(command.args(args[1..].iter().map(|arg| replaced(arg, "tree/"))), input)
    }

    fn run(&self, command: &mut Command, input: &[u8]) -> Output {
        command.current_dir(self.0.path()).env("LC_ALL", "C.UTF-8").env("TZ", "UTC0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // A program that does not read all of it closes the pipe.
            scope.spawn(move || pipe.write_all(input));
            child.wait_with_output().unwrap()
        })
    }

    /// Asserts that both end in the same way and print the same lines, in any order.
    #[track_caller]
    pub fn same_lines(&self, args: &[&str]) {
        let sorted = |output: &Output, root: &str| {
            let seen = Seen::of(output, root);
            let mut lines: Vec<String> = seen.text.lines().map(str::to_owned).collect();
            lines.sort();
            (seen.code, lines)
        };
        let (theirs, ours) = (self.theirs(args, b""), self.ours(args, b""));
        let errors = String::from_utf8_lossy(&ours.stderr);
        assert_eq!(sorted(&ours, "disk.img:/"), sorted(&theirs, "tree/"), "{args:?}: {errors}");
    }

    /// Asserts that both print the same and end in the same way.
    #[track_caller]
    pub fn same(&self, args: &[&str]) {
        self.same_with(args, b"");
    }

    /// Asserts the same with `input` on standard input. Returns the outputs of the host's program and of obento.
    #[track_caller]
    pub fn same_with(&self, args: &[&str], input: &[u8]) -> (Output, Output) {
        let theirs = self.theirs(args, input);
        let ours = self.ours(args, input);
        let expected = Seen::of(&theirs, "tree/");
        let found = Seen::of(&ours, "disk.img:/");
        let errors = String::from_utf8_lossy(&ours.stderr);
        assert_eq!(found, expected, "{args:?}: {errors}");
        (theirs, ours)
    }
}

impl Seen {
    pub fn of(output: &Output, root: &str) -> Self {
        let text = output.stdout.iter().map(|&byte| char::from(byte)).collect::<String>();
        Self { code: output.status.code(), text: text.replace(root, "@/") }
    }
}

fn replaced(arg: &str, root: &str) -> std::ffi::OsString {
    match arg.strip_prefix("@/") {
        Some(rest) => format!("{root}{rest}").into(),
        None => OsStr::new(arg).to_owned(),
    }
}

/// Writes `bytes` at `offset` of a file of `len` bytes.
pub fn sparse(path: &Path, len: u64, parts: &[(u64, &[u8])]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    for (offset, bytes) in parts {
        file.write_all_at(bytes, *offset).unwrap();
    }
}

/// Numbers that are the same each time (Knuth's linear congruential generator).
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// Returns text with line ends, invalid UTF-8, NUL and characters of several bytes now and then.
    pub fn text(&mut self, len: u64) -> Vec<u8> {
        const PIECES: &[&[u8]] = &[
            b"a",
            b"b",
            b"foo",
            b"Foo",
            b"_",
            b" ",
            b"\t",
            b"bar",
            b"1",
            b".",
            b"x",
            b"\n",
            b"\n",
            b"\r\n",
            "\u{e9}".as_bytes(),
            "\u{65e5}".as_bytes(),
        ];
        const ODD: &[&[u8]] = &[b"\0", b"\xff", b"\xe2\x82", b"\xf0\x9f", b"\n\n"];
        let mut text = Vec::new();
        let is_odd = self.below(3) == 0;
        while (text.len() as u64) < len {
            let pieces = if is_odd && self.below(20) == 0 { ODD } else { PIECES };
            let at = self.below(pieces.len() as u64);
            text.extend_from_slice(pieces[usize::try_from(at).unwrap()]);
        }
        text
    }
}
