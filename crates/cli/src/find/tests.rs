//! Tests of the language with a small tree in memory.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::rc::Rc;

use obento::Error;
use obento::base::{Attr, DeviceNumber, FileFlags, FileKind, Generation, Ino, Mode, Timestamp};

use super::*;
use crate::escape::NameStyle;

const NOW: Timestamp = Timestamp::new(1_795_268_933, 0);

struct Fixed(Zone);

impl ParseContext for Fixed {
    fn now(&self) -> Timestamp {
        NOW
    }
    fn zone(&self) -> &Zone {
        &self.0
    }
    fn time_of(&self, operand: &OsStr, _: TimeField) -> Result<Option<Timestamp>, String> {
        if operand == "ref" { Ok(Some(Timestamp::new(NOW.secs() - 100, 5))) } else { Err("not found".into()) }
    }
    fn search_path(&self) -> Option<OsString> {
        Some("/usr/bin:/bin".into())
    }

    fn file(&self, _: &OsStr) -> Result<Reference, String> {
        Ok(Reference { volume: 0, ino: Ino(12) })
    }
}

fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

fn parsed(text: &str) -> Parsed {
    parse(&words(text), &Fixed(Zone::utc())).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    let error = parse(&words(text), &Fixed(Zone::utc())).expect_err(text);
    error.help.map_or(error.message.clone(), |help| format!("{} | {help}", error.message))
}

#[derive(Clone)]
struct Fake {
    path: &'static str,
    attr: Attr,
    target: Option<&'static str>,
}

fn fake(path: &'static str, kind: FileKind, mode: u16, size: u64, age: i64) -> Fake {
    let time = Timestamp::new(NOW.secs() - age, 5);
    Fake {
        path,
        attr: Attr {
            ino: Ino(12),
            generation: Generation(0),
            kind,
            mode: Mode::new(mode),
            nlink: 1,
            uid: 0,
            gid: 7,
            rdev: DeviceNumber { major: 8, minor: 1 },
            size,
            blocks: size.div_ceil(4096) * 8,
            block_size: 4096,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            flags: FileFlags::empty(),
            change: 0,
            project: 0,
        },
        target: (kind == FileKind::Symlink).then_some("nowhere"),
    }
}

impl File for Fake {
    fn kind(&self) -> Result<FileKind, Error> {
        Ok(self.attr.kind)
    }
    fn attr(&self) -> Result<Attr, Error> {
        Ok(self.attr)
    }
    fn target_attr(&self) -> Result<Option<Attr>, Error> {
        Ok(self.target.is_none().then_some(self.attr))
    }
    fn link_target(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.target.map(|target| target.as_bytes().to_vec()))
    }
    fn is_empty_dir(&self) -> Result<bool, Error> {
        Ok(self.path == "/empty")
    }
    fn context(&self) -> Result<Option<Vec<u8>>, Error> {
        Ok(None)
    }
    fn user_name(&self, uid: u32) -> Option<&[u8]> {
        (uid == 0).then_some(b"root")
    }
    fn group_name(&self, _: u32) -> Option<&[u8]> {
        None
    }
    fn owner_id(&self, owner: Owner, name: &[u8]) -> Option<u32> {
        (owner == Owner::User && name == b"root").then_some(0)
    }
    fn fs_type(&self) -> &str {
        "ext4"
    }
    fn volume(&self) -> usize {
        0
    }
    fn write_json(&self, address: &[u8], _: &[u8], out: &mut dyn Write) -> Result<(), EvaluationError> {
        Ok(out.write_all(&[b"{", address, b"}"].concat())?)
    }
    fn copy_out(&self, mut to: std::fs::File) -> Result<u64, CopyFailure> {
        to.write_all(self.path.as_ref()).map_err(CopyFailure::Target)?;
        Ok(0)
    }
}

fn tree() -> Vec<Fake> {
    vec![
        fake("/", FileKind::Directory, 0o755, 4096, 10),
        fake("/a.txt", FileKind::Regular, 0o644, 1500, 50),
        fake("/b.TXT", FileKind::Regular, 0o4755, 0, 200_000),
        fake("/empty", FileKind::Directory, 0o700, 4096, 90_000),
        fake("/link", FileKind::Symlink, 0o777, 7, 10),
        fake("/new\nline", FileKind::Fifo, 0o600, 0, 10),
    ]
}

#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Evaluates the expression for the whole tree. Returns the output.
fn found_with(style: NameStyle, args: &[OsString]) -> String {
    let parsed = parse(args, &Fixed(Zone::utc())).unwrap();
    let out = Shared::default();
    let mut evaluator = Evaluator {
        expr: &parsed.expr,
        zone: Zone::utc(),
        now: NOW,
        sinks: vec![Sink { out: Box::new(out.clone()), style }],
        runner: Runner::new(&parsed.commands),
        json: false,
        columns: Default::default(),
    };
    for file in tree() {
        let depth = usize::from(file.path != "/");
        let (prefix, path) = (&b"i:"[..], file.path.as_bytes());
        let entry = VisitedEntry { prefix, path, start: b"i:/", start_len: 1, depth, file: &file };
        match evaluator.evaluate(&entry) {
            Ok(verdict) if verdict.quit => break,
            Ok(_) => {}
            Err(EvaluationError::Command(why)) => {
                out.clone().write_all(format!("<{why}>").as_bytes()).unwrap()
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    evaluator.finish().unwrap();
    let bytes = out.0.borrow().clone();
    String::from_utf8(bytes).unwrap()
}

fn found(text: &str) -> String {
    found_with(NameStyle::Literal, &words(text))
        .replace("i:/new\nline", "i:/nl")
        .replace('\n', " ")
        .trim_end()
        .into()
}

#[test]
fn without_an_action_matches_are_printed() {
    assert_eq!(found(""), "i:/ i:/a.txt i:/b.TXT i:/empty i:/link i:/nl");
    assert_eq!(found("-name *.txt"), "i:/a.txt");
    assert_eq!(found("-iname *.txt -o -type l"), "i:/a.txt i:/b.TXT i:/link");
    assert_eq!(found("-prune"), found(""));
}

#[test]
fn and_binds_tighter_than_or_and_or_tighter_than_comma() {
    assert_eq!(found("-type f -o -type d -print"), "i:/ i:/empty");
    assert_eq!(found("-name a.txt -print , -type l -print"), "i:/a.txt i:/link");
    assert_eq!(found("( -type f -o -type d ) ! -name *.txt -print"), "i:/ i:/b.TXT i:/empty");
    assert_eq!(found("-not -not -type p"), "i:/nl");
    assert_eq!(found("-false -o -true -a -name /"), "i:/");
}

#[test]
fn tests_of_attributes() {
    assert_eq!(found("-size 3"), "i:/a.txt");
    assert_eq!(found("-empty"), "i:/b.TXT i:/empty");
    assert_eq!(found("-perm -4000"), "i:/b.TXT");
    assert_eq!(found("-perm /g+w"), "i:/link");
    assert_eq!(found("-mtime +0"), "i:/b.TXT i:/empty");
    assert_eq!(found("-mmin 1"), "i:/ i:/a.txt i:/link i:/nl");
    assert_eq!(found("-newer ref -type f"), "i:/a.txt");
    assert_eq!(found("-newermt 2026-11-20 -type d"), "i:/ i:/empty");
    assert_eq!(found("-user root -nogroup -gid 7 -type l -xtype l -lname now*"), "i:/link");
    assert_eq!(found("-group root"), "");
    assert_eq!(found("-type f,p -links 1 -inum 12 -fstype ext4"), "i:/a.txt i:/b.TXT i:/nl");
    assert_eq!(found("-path /?* -regex .*/[ab]\\.\\(txt\\|TXT\\)"), "i:/a.txt i:/b.TXT");
    assert_eq!(found("-executable"), "i:/ i:/b.TXT i:/empty");
}

#[test]
fn printf_renders_every_directive() {
    let format = "-type f -name a* -printf";
    let print = |text: &str| {
        let mut args = words(format);
        args.push(text.into());
        found_with(NameStyle::Literal, &args)
    };
    assert_eq!(
        print(r"%p %P %H %f %h %d %s %b %k %i %n %m %#m %M %u %U %g %G %y %Y [%l] %F %S %%\n"),
        "i:/a.txt a.txt i:/ a.txt i: 1 1500 8 4 12 1 644 0644 -rw-r--r-- root 0 7 7 f f [] ext4 2.73067 %\n"
    );
    assert_eq!(print("%10f|%-10f|%.1f|%05d|%+d"), "     a.txt|a.txt     |a|00001|+1");
    assert_eq!(
        print(r"%T@ %TY-%Tm-%Td %t\0"),
        "1795268883.0000000050 2026-11-21 Sat Nov 21 13:48:03.0000000050 2026\0"
    );
    assert_eq!(print(r"[%B@]"), "[]");
}

#[test]
fn ls_has_gnu_finds_columns() {
    assert_eq!(
        found_with(NameStyle::Literal, &words("-name b.TXT -ls -o -type l -ls -o -type p -ls")),
        concat!(
            "       12      0 -rwsr-xr-x   1 root     7               0 Nov 19 06:15 i:/b.TXT\n",
            "       12      4 lrwxrwxrwx   1 root     7               7 Nov 21 13:48 i:/link -> nowhere\n",
            "       12      0 prw-------   1 root     7               0 Nov 21 13:48 i:/new\\nline\n",
        )
    );
}

#[test]
fn a_terminal_sees_question_marks_for_control_characters() {
    assert_eq!(found_with(NameStyle::Question, &words("-type p")), "i:/new?line\n");
    assert_eq!(found_with(NameStyle::Question, &words("-type p -print0")), "i:/new\nline\0");
}

#[test]
fn quit_stops_at_once() {
    assert_eq!(found("-type f -print -quit"), "i:/a.txt");
    assert_eq!(found("-type f -quit -o -print"), "i:/");
}

#[test]
fn exec_runs_a_command_on_a_copy_and_answers_how_it_ended() {
    assert_eq!(found("-name a.txt -exec test -f {} ; -print"), "i:/a.txt");
    assert_eq!(found("-name a.txt -exec test -d {} ; -print"), "");
    assert_eq!(found("-name a.txt -exec grep -q /a.txt {} ; -print"), "i:/a.txt");
    assert_eq!(
        found("-type d -exec test -d {} ;"),
        "<is a directory   help: add -type f before -exec, which requires regular files>".repeat(2)
    );
    assert_eq!(found("-type l -exec cat {} ;"), "<the target of the symbolic link does not exist>");
}

#[test]
fn options_apply_to_the_whole_search_and_warn_if_they_mislead() {
    let all = parsed("-name x -maxdepth 2 -mindepth 1 -depth");
    assert_eq!(
        (all.options.max_depth, all.options.min_depth, all.options.order),
        (2, 1, DirectoryOrder::Post)
    );
    assert_eq!(all.warnings.len(), 3);
    assert!(all.warnings[0].starts_with("-maxdepth after -name"), "{:?}", all.warnings);
    assert!(parsed("-nowarn -name x -maxdepth 2").warnings.is_empty());
    assert!(parsed("-maxdepth 2 -name x").warnings.is_empty());
    assert_eq!(parsed("-name a/b").warnings.len(), 1);
}

#[test]
fn mistakes_are_reported_with_the_right_spelling() {
    for (text, expected) in [
        ("-nmae x", "find has no test or action '-nmae' | did you mean '-name'?"),
        (
            "-frobnicate",
            "find has no test or action '-frobnicate' | run 'obento help find' to list the tests and actions",
        ),
        ("-name", "-name requires an argument"),
        (
            "-name a.c b.c",
            "start points come before the expression: 'b.c' | if a shell expanded the pattern of -name, put it in quotes",
        ),
        ("( -true", "a '(' has no ')' | put a backslash before each parenthesis in a shell: \\( ... \\)"),
        ("( )", "there is nothing between '(' and ')'"),
        ("-true )", "there are more ')' than '('"),
        ("-o -true", "an expression is missing before '-o'"),
        ("-a -true", "an expression is missing before '-a'"),
        ("-true -o", "an expression is missing after '-o'"),
        ("-true -a", "an expression is missing after '-a'"),
        ("!", "an expression is missing after '!'"),
        ("-true , )", "an expression is missing after ','"),
        ("-type x", "-type requires one or several of b c d f l p s, separated by commas, not 'x'"),
        ("-type f,", "-type requires one or several of b c d f l p s, separated by commas, not 'f,'"),
        (
            "-size 1x",
            "-size requires a size (N, +N or -N, optionally with one of the units c w b k M G), not '1x'",
        ),
        (
            "-perm +222",
            "-perm requires a mode (644 for exactly these bits, -u+w for at least these, /6000 for any), \
             not '+222'",
        ),
        ("-maxdepth -1", "-maxdepth requires a number of levels, not '-1'"),
        ("-newer gone", "-newer cannot read the times of 'gone': not found"),
        ("-newermt soon", "-newermt requires a date (2026-01-31, '2026-01-31 12:00', @SECONDS), not 'soon'"),
        (
            "-exec ls",
            "the command of -exec has no end | end the command with ';' (in most shells \\;) or with {} +",
        ),
        ("-exec ;", "-exec requires a command"),
        ("-exec ls {} {} +", "-exec ... + requires {} exactly once, as the last word"),
        (
            "-delete",
            "-delete is not supported: find does not change the image | use 'obento rm' to remove files",
        ),
        (
            "--frob",
            "find has no test or action '--frob' | obento's own options come before the first start point",
        ),
    ] {
        assert_eq!(refused(text), expected);
    }
    assert!(refused("-regextype foo").contains("posix-extended"));
}

#[test]
fn nesting_is_bounded_and_chains_are_not() {
    assert!(refused(&"( ".repeat(100_000)).starts_with("the expression nests deeper"));
    assert!(refused(&"! ".repeat(100_000)).starts_with("the expression nests deeper"));
    assert_eq!(found(&format!("{} -name a.txt", "-true -o -false ".repeat(20_000))), found(""));
}

#[test]
fn start_points_end_where_the_expression_begins() {
    for (text, starts) in
        [("a b -name x", 2), ("-name x", 0), ("a ( -name x )", 1), ("a - !", 2), ("a !x (y", 3)]
    {
        assert_eq!(split_start_points(&words(text)).0.len(), starts, "{text}");
    }
}
