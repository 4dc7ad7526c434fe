//! Arguments to expression: operators and their precedence, the implicit `-print`, and errors that help.
//!
//! Precedence from tight to loose: `( )`; `!`; `-a` or nothing; `-o`; `,`. What a single test or action takes is in
//! `primary`.
//!
//! Invariant: parsing recurses only for `(` and `!`, and never deeper than [`MAX_DEPTH`].

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use obento::Timestamp;

use super::expression::{Action, Command, Expr, Options, Output, Owner, Reference, Stamp, Test};
use super::primary;
use super::regexp::Dialect;
use super::stamp::Zone;

/// How deep parentheses and negations may nest: more than a person writes, and less than a stack holds.
const MAX_DEPTH: usize = 500;

/// What the parser has to ask the world for.
pub trait World {
    /// The moment at which the command started.
    fn now(&self) -> Timestamp;
    /// The zone in which dates are read.
    fn zone(&self) -> &Zone;
    /// A time of the file that `operand` (a host path or an address) names. The error says why not.
    fn time_of(&self, operand: &OsStr, stamp: Stamp) -> Result<Option<Timestamp>, String>;
    /// Where programs are searched for.
    fn search_path(&self) -> Option<OsString>;
    /// The file in an image that `operand` names.
    fn file(&self, operand: &OsStr) -> Result<Reference, String>;
}

/// What the arguments mean.
#[derive(Debug)]
pub struct Parsed {
    /// The expression, with the implicit `-print` where there was no action.
    pub expr: Expr,
    /// What holds for the whole search.
    pub options: Options,
    /// The commands of `-exec`.
    pub commands: Vec<Command>,
    /// The host files of `-fprint` and its like; [`Output`] 0 is standard output, so the first of these is 1.
    pub outputs: Vec<OsString>,
    /// The users and groups that tests name, which an image must know.
    pub owners: Vec<(Owner, Vec<u8>)>,
    /// Whether `-printf`, `-ls`, `-print0` or the like write to standard output, which JSON does not go with.
    pub formatted: bool,
    /// What looks like a mistake, but has a meaning.
    pub warnings: Vec<String>,
}

/// Why the arguments are no expression, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyntaxError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl SyntaxError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    #[must_use]
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

pub(super) type Result<T, E = SyntaxError> = std::result::Result<T, E>;

/// Splits the arguments into start points and the expression, which begins with the first `-x`, `(` or `!`.
pub fn split_start_points(args: &[OsString]) -> (&[OsString], &[OsString]) {
    let expression = args.iter().position(|arg| matches!(arg.as_bytes(), [b'-', _, ..] | b"(" | b"!"));
    args.split_at(expression.unwrap_or(args.len()))
}

/// Reads the expression `args`. Without any it is `-print`.
pub fn parse(args: &[OsString], world: &dyn World) -> Result<Parsed> {
    let mut parser = Parser::new(args, world);
    let expr = if args.is_empty() { Expr::All(Vec::new()) } else { parser.sequence(0)? };
    if let Some(rest) = parser.peek() {
        return Err(match rest.as_bytes() {
            b")" => SyntaxError::new("there are more `)' than `('"),
            _ => parser.misplaced(rest),
        });
    }
    let expr =
        if parser.has_action { expr } else { Expr::All(vec![expr, Expr::Act(Action::Print(Output(0)))]) };
    Ok(Parsed {
        expr,
        options: parser.options,
        commands: parser.commands,
        outputs: parser.outputs,
        owners: parser.owners,
        formatted: parser.formatted,
        warnings: if parser.warn { parser.warnings } else { Vec::new() },
    })
}

/// The parser's state: where it is, and what the options said so far.
pub(super) struct Parser<'a> {
    args: &'a [OsString],
    at: usize,
    pub world: &'a dyn World,
    pub options: Options,
    pub commands: Vec<Command>,
    pub outputs: Vec<OsString>,
    pub owners: Vec<(Owner, Vec<u8>)>,
    pub warnings: Vec<String>,
    pub warn: bool,
    pub has_action: bool,
    pub formatted: bool,
    pub dialect: Dialect,
    /// Now, or the coming midnight from `-daystart` on, in nanoseconds.
    pub day_end: i128,
    /// The first test or action, for the warning that a global option follows it.
    pub first_primary: Option<String>,
    /// The last test that took a pattern: what a shell expanded, if words are left over.
    pub last_pattern: Option<String>,
}

impl<'a> Parser<'a> {
    fn new(args: &'a [OsString], world: &'a dyn World) -> Self {
        Self {
            args,
            at: 0,
            world,
            options: Options::default(),
            commands: Vec::new(),
            outputs: Vec::new(),
            owners: Vec::new(),
            warnings: Vec::new(),
            warn: true,
            has_action: false,
            formatted: false,
            dialect: Dialect::Emacs,
            day_end: super::compare::nanos(world.now()),
            first_primary: None,
            last_pattern: None,
        }
    }

    pub fn peek(&self) -> Option<&'a OsStr> {
        self.args.get(self.at).map(OsString::as_os_str)
    }

    pub fn next(&mut self) -> Option<&'a OsStr> {
        let arg = self.peek();
        self.at += usize::from(arg.is_some());
        arg
    }

    /// `a , b`.
    fn sequence(&mut self, depth: usize) -> Result<Expr> {
        self.chain(&[","], Expr::Sequence, |parser| parser.any(depth))
    }

    /// `a -o b`.
    fn any(&mut self, depth: usize) -> Result<Expr> {
        self.chain(&["-o", "-or"], Expr::Any, |parser| parser.all(depth))
    }

    /// Operands with one of `operators` between them.
    fn chain(
        &mut self,
        operators: &[&str],
        make: fn(Vec<Expr>) -> Expr,
        operand: impl Fn(&mut Self) -> Result<Expr>,
    ) -> Result<Expr> {
        let mut operands = vec![operand(self)?];
        while let Some(operator) = self.peek().filter(|arg| operators.iter().any(|op| arg == op)) {
            self.at += 1;
            if self.ends_operand() {
                return Err(expected_after(operator));
            }
            operands.push(operand(self)?);
        }
        Ok(if operands.len() == 1 { operands.remove(0) } else { make(operands) })
    }

    /// `a -a b`, `a b`.
    fn all(&mut self, depth: usize) -> Result<Expr> {
        let mut operands = Vec::new();
        loop {
            let operator = self.peek().filter(|arg| *arg == "-a" || *arg == "-and");
            if let Some(operator) = operator {
                if operands.is_empty() {
                    return Err(nothing_before(operator));
                }
                self.at += 1;
                if self.ends_operand() {
                    return Err(expected_after(operator));
                }
            } else if self.ends_operand() {
                break;
            }
            operands.push(self.negation(depth)?);
        }
        match (operands.len(), self.peek()) {
            (0, Some(operator)) if operator == ")" => Err(SyntaxError::new("there is nothing before `)'")),
            (0, Some(operator)) => Err(nothing_before(operator)),
            (0, None) => Err(SyntaxError::new("there is an expression missing at the end")),
            (1, _) => Ok(operands.remove(0)),
            _ => Ok(Expr::All(operands)),
        }
    }

    /// Whether nothing more belongs to an operand of `-o` or `,`.
    fn ends_operand(&self) -> bool {
        self.peek().is_none_or(|arg| matches!(arg.as_bytes(), b")" | b"," | b"-o" | b"-or"))
    }

    fn negation(&mut self, depth: usize) -> Result<Expr> {
        let arg = self.next().unwrap_or_default();
        if depth >= MAX_DEPTH {
            return Err(SyntaxError::new(format!("the expression nests deeper than {MAX_DEPTH}")));
        }
        match arg.as_bytes() {
            b"!" | b"-not" => {
                if self.ends_operand() {
                    return Err(expected_after(arg));
                }
                Ok(Expr::Not(Box::new(self.negation(depth + 1)?)))
            }
            b"(" => {
                if self.peek().is_some_and(|arg| arg == ")") {
                    return Err(SyntaxError::new("there is nothing between `(' and `)'"));
                }
                let inner = self.sequence(depth + 1)?;
                match self.next() {
                    Some(close) if close == ")" => Ok(inner),
                    Some(other) => Err(self.misplaced(other)),
                    None => Err(SyntaxError::new("a `(' has no `)'")
                        .help("both need a backslash or quotes in most shells: \\( ... \\)")),
                }
            }
            _ => primary::parse(self, arg),
        }
    }

    /// The error for a word that is no part of any expression.
    pub fn misplaced(&self, word: &OsStr) -> SyntaxError {
        let error =
            SyntaxError::new(format!("start points come before the expression: `{}'", word.display()));
        match &self.last_pattern {
            Some(test) => error.help(format!("if a shell expanded the pattern of {test}, put it in quotes")),
            None => error,
        }
    }
}

fn expected_after(operator: &OsStr) -> SyntaxError {
    SyntaxError::new(format!("an expression is missing after `{}'", operator.display()))
}

fn nothing_before(operator: &OsStr) -> SyntaxError {
    SyntaxError::new(format!("there is nothing before `{}'", operator.display()))
}

/// For words that only need to exist.
pub(super) fn always(value: bool) -> Expr {
    Expr::Test(Test::Always(value))
}
