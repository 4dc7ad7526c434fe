//! The parser of expressions: operators and their precedence, the implicit `-print`, and errors with
//! hints.
//!
//! Precedence from tight to loose: `( )`; `!`; `-a` or nothing; `-o`; `,`. `primary` parses tests and
//! actions.
//!
//! Invariant: the parser recurses only for `(` and `!`, and never deeper than [`MAX_DEPTH`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use obento::base::Timestamp;

use super::expression::{Action, ExecCommand, Expr, Options, OutputIndex, Owner, Reference, Test, TimeField};
use super::primary;
use super::regexp::Dialect;
use super::stamp::Zone;

/// The maximum depth of parentheses and negations, which limits the use of the stack.
const MAX_DEPTH: usize = 500;

/// The environment of the parser.
pub trait ParseContext {
    /// Returns the start time of the command.
    fn now(&self) -> Timestamp;
    /// Returns the time zone of dates.
    fn zone(&self) -> &Zone;
    /// Returns a time of the file that `operand` (a host path or an address) names. The error contains
    /// the reason.
    fn time_of(&self, operand: &OsStr, stamp: TimeField) -> Result<Option<Timestamp>, String>;
    /// Returns the search path of programs.
    fn search_path(&self) -> Option<OsString>;
    /// Returns the file in an image that `operand` names.
    fn file(&self, operand: &OsStr) -> Result<Reference, String>;
}

/// The parsed arguments.
#[derive(Debug)]
pub struct Parsed {
    /// The expression, with the implicit `-print` if it had no action.
    pub expr: Expr,
    /// The settings of the whole search.
    pub options: Options,
    /// The commands of `-exec`.
    pub commands: Vec<ExecCommand>,
    /// The host files of `-fprint` and similar actions; [`OutputIndex`] 0 is standard output, so the
    /// first file is 1.
    pub outputs: Vec<OsString>,
    /// The users and groups that tests name, which the image must define.
    pub owners: Vec<(Owner, Vec<u8>)>,
    /// Whether `-printf`, `-ls`, `-print0` or a similar action writes to standard output, which excludes
    /// JSON.
    pub formatted: bool,
    /// Warnings about probable mistakes.
    pub warnings: Vec<String>,
}

/// The reason why the arguments are not an expression, and a hint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    /// The reason.
    pub message: String,
    /// The correct syntax.
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

pub(super) type Result<T, E = SyntaxError> = std::result::Result<T, E>;

/// Splits the arguments into start points and the expression, which begins with the first `-x`, `(` or `!`.
pub fn split_start_points(args: &[OsString]) -> (&[OsString], &[OsString]) {
    let expression = args.iter().position(|arg| matches!(arg.as_bytes(), [b'-', _, ..] | b"(" | b"!"));
    args.split_at(expression.unwrap_or(args.len()))
}

/// Parses the expression `args`. An empty expression is `-print`.
pub fn parse(args: &[OsString], world: &dyn ParseContext) -> Result<Parsed> {
    let mut parser = Parser::new(args, world);
    let expr = if args.is_empty() { Expr::All(Vec::new()) } else { parser.sequence(0)? };
    if let Some(rest) = parser.peek() {
        return Err(match rest.as_bytes() {
            b")" => SyntaxError::new("there are more ')' than '('"),
            _ => parser.misplaced(rest),
        });
    }
    let expr = if parser.has_action {
        expr
    } else {
        Expr::All(vec![expr, Expr::Act(Action::Print(OutputIndex(0)))])
    };
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

/// The state of the parser: its position, and the options so far.
pub(super) struct Parser<'a> {
    args: &'a [OsString],
    at: usize,
    pub world: &'a dyn ParseContext,
    pub options: Options,
    pub commands: Vec<ExecCommand>,
    pub outputs: Vec<OsString>,
    pub owners: Vec<(Owner, Vec<u8>)>,
    pub warnings: Vec<String>,
    pub warn: bool,
    pub has_action: bool,
    pub formatted: bool,
    pub dialect: Dialect,
    /// The present time, or the next midnight after `-daystart`, in nanoseconds.
    pub day_end: i128,
    /// The first test or action, for the warning that a global option follows it.
    pub first_primary: Option<String>,
    /// The last test with a pattern: a shell may have expanded the pattern if words are left over.
    pub last_pattern: Option<String>,
}

impl<'a> Parser<'a> {
    fn new(args: &'a [OsString], world: &'a dyn ParseContext) -> Self {
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

    /// Parses `a , b`.
    fn sequence(&mut self, depth: usize) -> Result<Expr> {
        self.chain(&[","], Expr::Sequence, |parser| parser.any(depth))
    }

    /// Parses `a -o b`.
    fn any(&mut self, depth: usize) -> Result<Expr> {
        self.chain(&["-o", "-or"], Expr::Any, |parser| parser.all(depth))
    }

    /// Parses operands that are separated by one of `operators`.
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

    /// Parses `a -a b` and `a b`.
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
            (0, Some(operator)) => Err(nothing_before(operator)),
            (0, None) => Err(SyntaxError::new("an expression is missing at the end")),
            (1, _) => Ok(operands.remove(0)),
            _ => Ok(Expr::All(operands)),
        }
    }

    /// Returns whether an operand of `-o` or `,` ends here.
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
                    return Err(SyntaxError::new("there is nothing between '(' and ')'"));
                }
                let inner = self.sequence(depth + 1)?;
                match self.next() {
                    Some(close) if close == ")" => Ok(inner),
                    Some(other) => Err(self.misplaced(other)),
                    None => Err(SyntaxError::new("a '(' has no ')'")
                        .help("put a backslash before each parenthesis in a shell: \\( ... \\)")),
                }
            }
            _ => primary::parse(self, arg),
        }
    }

    /// Returns the error for a word that cannot be part of an expression.
    pub fn misplaced(&self, word: &OsStr) -> SyntaxError {
        let error =
            SyntaxError::new(format!("start points come before the expression: '{}'", word.display()));
        match &self.last_pattern {
            Some(test) => error.help(format!("if a shell expanded the pattern of {test}, put it in quotes")),
            None => error,
        }
    }
}

fn expected_after(operator: &OsStr) -> SyntaxError {
    SyntaxError::new(format!("an expression is missing after '{}'", operator.display()))
}

fn nothing_before(operator: &OsStr) -> SyntaxError {
    SyntaxError::new(format!("an expression is missing before '{}'", operator.display()))
}

/// An environment for words that only need to exist.
pub(super) fn always(value: bool) -> Expr {
    Expr::Test(Test::Always(value))
}
