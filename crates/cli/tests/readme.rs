//! The examples of README.md: each command prints what the page says.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use obento_testkit::{Oracle, require};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The `console` blocks of a page: commands after `$ `, each followed by its output.
fn examples(page: &str) -> Vec<&str> {
    let blocks = page.split("```console\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

/// Runs the commands of `example` and returns a transcript in the same form.
fn transcript(example: &str, folder: &Path) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_obento")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut transcript = String::new();
    for command in example.lines().filter_map(|line| line.strip_prefix("$ ")) {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{command} 2>&1")]).current_dir(folder);
        let output = shell.env("PATH", &path).env("TZ", "UTC0").output().unwrap();
        assert!(output.status.success(), "{command}: {}", output.status);
        let output = String::from_utf8(output.stdout).unwrap();
        write!(transcript, "$ {command}\n{output}").unwrap();
    }
    transcript
}

#[test]
fn every_example_prints_what_the_page_shows() {
    if !require(&[Oracle::Program("tar")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("samples")).unwrap();
    let sample = "samples/disk.img.zst";
    fs::copy(Path::new(ROOT).join(sample), folder.path().join(sample)).unwrap();
    let page = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    let examples = examples(&page);
    assert_eq!(examples.len(), 5, "the page has five examples");
    for example in examples {
        assert_eq!(transcript(example, folder.path()), example);
    }
}

#[test]
fn the_page_has_at_most_200_lines_and_its_text_is_wrapped_at_120_columns() {
    let page = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    assert!(page.lines().count() <= 200);
    let is_long = |line: &&str| !line.starts_with('|') && line.chars().count() > 120;
    let long: Vec<&str> = page.lines().filter(is_long).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_test_that_the_page_of_jobs_names_exists() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path));
    let page = read("docs/jobs.md").unwrap();
    let words =
        |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
    let mut named = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains(".rs`")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let sources: String = words(cells[2]).iter().map(|path| read(path).unwrap()).collect();
        for test in words(cells[3]) {
            assert!(sources.contains(&format!("\nfn {test}()")), "{test} of {}", cells[2]);
            named += 1;
        }
    }
    assert!(named > 30, "{named} tests");
}
