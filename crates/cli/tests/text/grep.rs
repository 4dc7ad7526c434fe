//! `grep` beside GNU grep.

use std::fs;

use crate::support::{Dice, Twins, sparse};

/// Text files, and files with NUL, invalid UTF-8, CR LF, long lines, without a last newline, and empty ones.
fn twins() -> Option<Twins> {
    let mut dice = Dice(21);
    Twins::with(&["grep"], "48M", |tree| {
        for directory in ["d", "d/e", "x"] {
            fs::create_dir(tree.join(directory)).unwrap();
            for file in 0..12 {
                let len = dice.below(900);
                fs::write(tree.join(directory).join(format!("f{file}.txt")), dice.text(len)).unwrap();
            }
            fs::write(tree.join(directory).join("code.c"), "int foo;\nint bar;\n").unwrap();
        }
        fs::write(tree.join("big"), dice.text(400_000)).unwrap();
        fs::write(tree.join("long"), [vec![b'y'; 300_000], b" foo\n".to_vec(), vec![b'z'; 5]].concat())
            .unwrap();
        fs::write(tree.join("crlf"), "foo\r\nbar\r\n\r\nfoo bar\r\n").unwrap();
        fs::write(tree.join("nul"), b"a\0foo\nb\0foo\nfoo\nend").unwrap();
        fs::write(tree.join("latin"), b"caf\xe9 foo\nfoo\nbar \xff\n").unwrap();
        fs::write(tree.join("utf8"), "\u{e9}t\u{e9} foo\n\u{c9}T\u{c9}\nfoo\u{e9} foo_ _foo foo\n").unwrap();
        fs::write(tree.join("empty"), "").unwrap();
        fs::write(tree.join("lines"), "1\n2 foo\n3\n4\n5\n6 foo\n7 foo\n8\n9\n10\n11\n12 foo").unwrap();
        std::os::unix::fs::symlink("f1.txt", tree.join("d/link")).unwrap();
        std::os::unix::fs::symlink("../x", tree.join("d/dir-link")).unwrap();
    })
}

const FILES: [&str; 10] = [
    "@/d/f1.txt",
    "@/d/f2.txt",
    "@/big",
    "@/long",
    "@/crlf",
    "@/nul",
    "@/latin",
    "@/utf8",
    "@/empty",
    "@/lines",
];

/// The files without bytes that are not UTF-8.
const VALID: [&str; 6] = ["@/long", "@/crlf", "@/nul", "@/utf8", "@/empty", "@/lines"];

const PATTERNS: &[(&str, &str)] = &[
    ("", "foo"),
    ("", "FOO"),
    ("", ""),
    ("", "^"),
    ("", "$"),
    ("", "^$"),
    ("", "o$"),
    ("", "^foo"),
    ("", "f.o"),
    ("", "fo*b"),
    ("", r"\(foo\|bar\)"),
    ("", r"\(foo\|bar\)\{2,\}"),
    ("", r"fo\+"),
    ("", r"a\?b"),
    ("", "[^a-z]"),
    ("", "[[:space:]]x"),
    ("", "[[:upper:]][[:lower:]]*"),
    ("", r"\bfoo\b"),
    ("", r"\<foo"),
    ("", r"foo\>"),
    ("", r"\w\W"),
    ("", "*"),
    ("", "1."),
    ("", "no such text"),
    ("", "foo\nbar"),
    ("-E", "foo|foobar|f"),
    ("-E", "(a|ab)(c|bcd)?"),
    ("-E", "(a|b|x)+1?"),
    ("-E", "^(foo|bar).*b$"),
    ("-E", "o{2}"),
    ("-E", "x{1,2}y{0,1}"),
    ("-E", "(^|a)b"),
    ("-E", "a{1"),
    ("-E", "*a"),
    ("-F", "foo"),
    ("-F", "."),
    ("-F", ".foo"),
    ("-F", "foo\na1"),
    ("-F", "[^a]"),
];

const OPTIONS: &[&str] = &[
    "-i",
    "-v",
    "-w",
    "-x",
    "-c",
    "-l",
    "-L",
    "-o",
    "-n",
    "-b",
    "-H",
    "-h",
    "-q",
    "-s",
    "-a",
    "-I",
    "-m 1",
    "-m 3",
    "-A 1",
    "-A 3",
    "-B 1",
    "-B 2",
    "-C 1",
    "-C 4",
    "--color=always",
    "-Z",
    "-2",
];

#[test]
fn lines_are_those_that_gnu_grep_prints() {
    let Some(twins) = twins() else { return };
    let mut dice = Dice(2);
    let mut pick = |most: usize| usize::try_from(dice.below(most as u64)).unwrap();
    for round in 0..700 {
        let (syntax, pattern) = PATTERNS[round % PATTERNS.len()];
        let mut args = vec!["grep"];
        args.extend([syntax].into_iter().filter(|syntax| !syntax.is_empty()));
        for _ in 0..pick(4) {
            args.extend(OPTIONS[pick(OPTIONS.len())].split(' '));
        }
        args.extend(["-e", pattern]);
        let first = pick(FILES.len());
        let count = 1 + pick(3);
        // Next to bytes that are not UTF-8, these have another meaning (decision 64).
        let has_boundary = [r"\b", r"\<", r"\>"].iter().any(|boundary| pattern.contains(boundary));
        let is_used = |file: &&&str| !has_boundary || VALID.contains(file);
        args.extend(FILES.iter().cycle().skip(first).filter(is_used).take(count));
        twins.same(&args);
    }
}

#[test]
fn trees_are_searched_as_gnu_grep_searches_them() {
    let Some(twins) = twins() else { return };
    for options in [
        "-r foo @/d",
        "-rn foo @/",
        "-rc foo @/",
        "-rl foo @/",
        "-rL foo @/",
        "-rh foo @/d",
        "-rI foo @/",
        "-R foo @/d",
        "-r foo @/d/link",
        "-r foo @/d/dir-link",
        "-r foo @/lines",
        "-rH foo @/lines",
        "-r --include=*.c int @/",
        "-r --exclude=*.txt foo @/",
        "-r --exclude-dir=d foo @/",
        "-rq foo @/",
        "-rq nothing-like-that @/",
        "-rE foo|bar @/d @/x @/lines",
        "-r foo @/d @/none",
        "-rs foo @/none",
        "-rqs foo @/d @/none",
    ] {
        let args: Vec<&str> = ["grep"].into_iter().chain(options.split(' ')).collect();
        twins.same_lines(&args);
    }
    // The target of a link is missing. Only -R follows the link.
    let dangling = Twins::with(&["grep"], "24M", |tree| {
        fs::write(tree.join("file"), "foo\n").unwrap();
        std::os::unix::fs::symlink("none", tree.join("link")).unwrap();
        std::os::unix::fs::symlink("file/below", tree.join("through")).unwrap();
    });
    let Some(dangling) = dangling else { return };
    for options in ["-R foo @/", "-r foo @/", "-Rs foo @/", "-Rq foo @/", "-R --include=file foo @/"] {
        let args: Vec<&str> = ["grep"].into_iter().chain(options.split(' ')).collect();
        dangling.same_lines(&args);
    }
    let [ours, theirs] = [
        dangling.ours(&["grep", "-R", "foo", "@/"], b""),
        dangling.theirs(&["grep", "-R", "foo", "@/"], b""),
    ]
    .map(|output| String::from_utf8_lossy(&output.stderr).to_ascii_lowercase());
    for (name, reason) in [("link", "no such file or directory"), ("through", "not a directory")] {
        for errors in [&ours, &theirs] {
            let is_reported = |line: &str| line.contains(name) && line.contains(reason);
            assert!(errors.lines().any(is_reported), "{name}: {errors}");
        }
    }
    // A bare image is its root.
    let ours = twins.ours(&["grep", "-rl", "foo", "disk.img"], b"");
    assert_eq!(ours.stdout, twins.ours(&["grep", "-rl", "foo", "@/"], b"").stdout);
}

#[test]
fn patterns_come_from_files_and_text_from_standard_input() {
    let Some(twins) = twins() else { return };
    fs::write(twins.path("patterns"), "2\n6\n").unwrap();
    fs::write(twins.path("none"), "").unwrap();
    for args in [
        &["grep", "-f", "patterns", "@/lines"][..],
        &["grep", "-f", "none", "@/lines"],
        &["grep", "-vf", "none", "@/lines"],
        &["grep", "-f", "patterns", "-e", "9", "@/lines"],
        &["grep", "-e", "9", "-e", "3", "@/lines"],
        &["grep", "-n", "foo", "-"],
        &["grep", "-H", "foo", "-", "@/lines"],
        &["grep", "-c", "foo", "@/lines", "-"],
    ] {
        twins.same_with(args, b"foo\nbar\nfoo bar");
    }
}

#[test]
fn malformed_patterns_and_missing_operands_end_with_2() {
    let Some(twins) = twins() else { return };
    for (args, message) in [
        (&["grep", "[a", "@/lines"][..], "cannot use the pattern '[a': a bracket is not closed"),
        (&["grep", r"\(a\)\1", "@/lines"], "back-references such as \\1 are not supported"),
        (&["grep", "a"], "missing operand"),
        (&["grep", "a", "@/d"], "is a directory"),
        (&["grep", "a", "@/none"], "cannot read 'disk.img:/none'"),
        (&["grep", "-f", "absent", "@/lines"], "cannot read 'absent'"),
    ] {
        let output = twins.ours(args, b"");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(message), "{args:?}: {said}");
    }
}

#[test]
fn a_hole_of_a_tebibyte_is_searched_in_bounded_memory_and_time() {
    const LEN: u64 = 1 << 40;
    let twins = Twins::with(&[], "24M", |tree| {
        sparse(&tree.join("holes"), LEN, &[(0, b"first foo\n"), (LEN - 10, b"\nlast foo\n")]);
    });
    let Some(twins) = twins else { return };
    let run = |args: &[&str]| {
        let output = twins.ours(args, b"");
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run(&["grep", "-c", "foo", "@/holes"]), (Some(0), "2\n".into(), String::new()));
    // Each zero ends a line: the two lines of text, and all the others.
    let empty = LEN - 20;
    assert_eq!(run(&["grep", "-cv", "foo", "@/holes"]), (Some(0), format!("{}\n", empty + 1), String::new()));
    let (code, text, said) = run(&["grep", "last", "@/holes"]);
    assert_eq!((code, text.as_str()), (Some(0), ""));
    assert!(
        said.contains("'disk.img:/holes': note: binary") || said.contains("binary file matches"),
        "{said}"
    );
    let (code, text, said) = run(&["grep", "-a", "last", "@/holes"]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(said.contains("a line is longer than 64 MiB"), "{said}");
}

#[test]
fn json_has_a_line_for_each_match() {
    let Some(twins) = Twins::new(&[], &[("f", b"one\ntwo\n")]) else { return };
    let text = |args: &[&str]| String::from_utf8(twins.ours(args, b"").stdout).unwrap();
    assert_eq!(
        text(&["grep", "--json", "-no", "tw", "@/f"]),
        "{\"schema\":\"obento/1\",\"kind\":\"match\",\"path\":\"disk.img:/f\",\"text\":\"two\",\"line\":2,\"matches\":[[0,2]]}\n"
    );
    assert!(text(&["grep", "--json", "-c", "o", "@/f"]).contains("\"kind\":\"match_count\""));
    assert!(text(&["grep", "--json", "-l", "o", "@/f"]).contains("\"matches\":true"));
}
