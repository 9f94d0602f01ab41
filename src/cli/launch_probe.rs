//! `workbench launch-probe`: what a launch costs in this process, as one line of JSON. `workbench trace` runs it in
//! processes of its own, untraced and traced; it is hidden because by itself it answers nobody's question.

use super::OutputArgs;
use crate::error::{Error, Result};
use crate::launch::Device;
use crate::profile::launch_cost;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The device
    #[arg(long, default_value_t = 0)]
    gpu: u32,
}

pub fn run(args: Args, _: &OutputArgs) -> Result<()> {
    let cost = launch_cost::measure(&Device::open(args.gpu)?)?;
    println!("{}", serde_json::to_string(&cost).map_err(|e| Error::usage(e.to_string()))?);
    Ok(())
}
