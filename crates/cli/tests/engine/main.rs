//! File systems that only Linux knows, through the kernel engine: the commands are the same, and so is what they show.

mod attributes;
mod building;
mod choice;
mod disk;
mod life;
mod programs;
mod reading;
mod reasons;
mod support;
mod writing;
