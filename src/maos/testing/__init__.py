"""The test kit: real servers, contract suites and faults, for our tests and for those of other stores."""
