//! The types of the kernel engine: what volumes of each hold, and what the documentation says of it.

mod broken;
mod contract;
mod damaged;
mod ids;
mod image;
mod needs;
mod numbers;
mod table;
mod times;
mod volumes;
