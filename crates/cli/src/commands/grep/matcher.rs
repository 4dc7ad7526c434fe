//! Finds matches: the lines of a buffer that match, and the longest match at each place of a line.

use std::ops::Range;

use grep_matcher::{LineMatchKind, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::nfa::thompson::{BuildError, Config};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

use super::args::Args;
use super::syntax::{literal, translate};
use crate::cause::Cause;
use crate::report::{Report, sentence};

/// The patterns, compiled.
pub struct Matcher {
    lines: RegexMatcher,
    /// Finds the end of the longest match, if the output shows matches.
    longest: Option<PikeVM>,
    /// Whether only matches count that are whole words.
    is_word: bool,
    /// Whether no pattern is given, so that no line matches.
    is_never: bool,
}

/// The most memory that compiled patterns take.
const SIZE: usize = 256 << 20;

/// Returns the reason in an error of the parser, which shows the translated pattern before the reason.
fn reason(error: &str) -> &str {
    error.rsplit_once("\nerror: ").map_or(error, |(_, reason)| reason)
}

impl Matcher {
    /// Compiles `patterns` as the options request. With `shows_matches`, [`matches`](Self::matches) is used.
    ///
    /// # Errors
    ///
    /// A pattern is malformed, not UTF-8, or not supported, or all of them are too long.
    pub fn new(patterns: &[Vec<u8>], args: &Args, shows_matches: bool) -> Result<Self, Report> {
        let mut alternatives = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            let failed = |cause: &dyn Cause| {
                let shown = sentence(&String::from_utf8_lossy(pattern));
                Report::new(format!("cannot use the pattern '{shown}'"), cause)
            };
            let text = str::from_utf8(pattern).map_err(|_| failed(&"not UTF-8"))?;
            alternatives.push(match args.fixed_strings {
                true => literal(text),
                false => translate(text, args.extended_regexp).map_err(|error| failed(&error))?,
            });
        }
        let all = alternatives.join("|");
        let all = match args {
            Args { line_regexp: true, .. } => format!("^(?:{all})$"),
            _ => all,
        };
        let mut builder = RegexMatcherBuilder::new();
        builder.multi_line(true).case_insensitive(args.ignore_case).line_terminator(Some(b'\n'));
        builder.size_limit(SIZE);
        let failed = |error: &dyn std::fmt::Display| {
            let is_wrong = |(_, one): &(&Vec<u8>, &String)| builder.build(one).is_err();
            let what = match patterns.iter().zip(&alternatives).find(is_wrong) {
                Some((pattern, _)) => {
                    format!("cannot use the pattern '{}'", sentence(&String::from_utf8_lossy(pattern)))
                }
                None => "cannot use the patterns".to_owned(),
            };
            Report::new(what, reason(&error.to_string()))
        };
        let lines = builder.build(&all).map_err(|error| failed(&error))?;
        let is_word = args.word_regexp && !args.line_regexp;
        let longest = match shows_matches || is_word {
            true => Some(longest(&all, args).map_err(|error| failed(&error))?),
            false => None,
        };
        Ok(Self { lines, longest, is_word, is_never: patterns.is_empty() })
    }

    /// Returns whether `line`, without its end, matches.
    pub fn is_match(&self, line: &[u8]) -> bool {
        match (self.is_never, self.is_word) {
            (true, _) => false,
            (false, true) => self.find(line, 0, &mut None).is_some(),
            (false, false) => self.lines.is_match(line).unwrap_or(false),
        }
    }

    /// Returns the first line of `bytes`, which are whole lines, that matches.
    pub fn find_line(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let mut from = 0;
        while from < bytes.len() && !self.is_never {
            // Errors of this crate are impossible: its error type has no values.
            let found = self.lines.find_candidate_line(&bytes[from..]).ok()??;
            let (LineMatchKind::Confirmed(at) | LineMatchKind::Candidate(at)) = found;
            let line = line_at(bytes, from + at);
            if !self.is_word && matches!(found, LineMatchKind::Confirmed(_))
                || self.is_match(&bytes[line.start..line.end - 1])
            {
                return Some(line);
            }
            from = line.end;
        }
        None
    }

    /// Returns the matches of `line` that are not empty: at each place the longest one.
    pub fn matches(&self, line: &[u8]) -> Vec<Range<usize>> {
        let (mut found, mut at, mut cache) = (Vec::new(), 0, None);
        while at <= line.len() && !self.is_never {
            let Some(range) = self.find(line, at, &mut cache) else { break };
            at = range.end.max(range.start + usize::from(range.is_empty()));
            if !range.is_empty() {
                found.push(range);
            }
        }
        found
    }

    /// Returns the first match of `line` from `at` on, and of those that start there the longest one. With `-w`,
    /// matches that are not whole words do not count. As in GNU grep, a shorter match is tried, and then a match that
    /// starts later.
    fn find(&self, line: &[u8], at: usize, cache: &mut Option<Cache>) -> Option<Range<usize>> {
        let mut from = at;
        while from <= line.len() {
            let first = self.lines.find_at(line, from).ok()??;
            let start = first.start();
            let mut next = Some(self.end_of(cache, line, start..line.len()).unwrap_or(first.end()));
            while let Some(end) = next {
                if !self.is_word || is_whole_word(line, start..end) {
                    return Some(start..end);
                }
                next = if end > start { self.end_of(cache, line, start..end - 1) } else { None };
            }
            from = start + 1;
        }
        None
    }

    /// Returns the end of the longest match that starts and ends in `range`.
    fn end_of(&self, cache: &mut Option<Cache>, line: &[u8], range: Range<usize>) -> Option<usize> {
        let longest = self.longest.as_ref()?;
        let cache = cache.get_or_insert_with(|| longest.create_cache());
        let input = Input::new(line).range(range).anchored(Anchored::Yes);
        longest.find_iter(cache, input).next().map(|found| found.end())
    }
}

/// Returns whether neither the character before `range` nor the one after it is part of a word. A byte that is not UTF-8 is not.
fn is_whole_word(line: &[u8], range: Range<usize>) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let before = &line[range.start.saturating_sub(4)..range.start];
    let starts = (0..before.len()).rev().take(4);
    let before = starts.map(|at| &before[at..]).find_map(|bytes| str::from_utf8(bytes).ok()?.chars().next());
    let after = &line[range.end..line.len().min(range.end + 4)];
    let after = after.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next());
    !before.is_some_and(is_word) && !after.is_some_and(is_word)
}

/// Compiles a pattern so that all of its matches are found, not the preferred one.
fn longest(pattern: &str, args: &Args) -> Result<PikeVM, Box<BuildError>> {
    let syntax = syntax::Config::new().multi_line(true).case_insensitive(args.ignore_case).utf8(false);
    PikeVM::builder()
        .syntax(syntax)
        .thompson(Config::new().utf8(false).nfa_size_limit(Some(SIZE)))
        .configure(PikeVM::config().match_kind(MatchKind::All))
        .build(pattern)
        .map_err(Box::new)
}

/// Returns the line around `at`, with its end.
fn line_at(bytes: &[u8], at: usize) -> Range<usize> {
    let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |end| end + 1);
    let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |end| at + end + 1);
    start..end
}
