//! File systems that only Linux supports, through the kernel engine: the commands and their output are the
//! same.

mod attributes;
mod building;
mod choice;
mod disk;
mod life;
mod programs;
mod reading;
mod reasons;
mod resize;
mod support;
mod writing;
