//! Calls on whole devices.

use super::Sim;

impl Sim {
    /// The program is done with a device: takes down what it did not free.
    pub fn give_up(&mut self, device: u32) {
        let (plain, physical) = self.outstanding(device);
        self.device(device).leaked = plain + physical;
    }
}
