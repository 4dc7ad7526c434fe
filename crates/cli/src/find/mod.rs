//! The expression of `obento find`: the language of GNU find for files in an image.
//!
//! [`parse()`] converts the arguments into an [`Expr`](expression::Expr), and [`Evaluator`] evaluates it
//! for one [`VisitedEntry`] after another. The command (`commands/find/`) opens images and walks trees; this
//! module does neither, so that the language can be tested separately.
//!
//! Source: the GNU findutils 4.9 manual, chapters "Finding Files" and "Actions"; POSIX.1-2017 `find`, `chmod`.

mod compare;
mod evaluate;
mod exec;
mod expression;
mod format;
mod ls;
mod parse;
mod perm;
mod primary;
mod regexp;
mod stamp;
#[cfg(test)]
mod tests;

pub use evaluate::{EvaluationError, Evaluator, File, Sink, Verdict, VisitedEntry, time_of};
pub use exec::{CopyFailure, Runner};
pub use expression::{DirectoryOrder, Owner, Reference, TimeField};
pub use parse::{ParseContext, Parsed, parse, split_start_points};
pub use stamp::Zone;
