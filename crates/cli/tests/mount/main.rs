//! `obento mount` on real mount points: what programs see, what is on disk afterwards, how a mount ends, and what it bears.

mod calls;
mod ends;
mod exfat;
mod fat;
mod judges;
mod kept;
mod matrix;
mod programs;
mod stress;
mod support;
mod together;
mod xv6;
