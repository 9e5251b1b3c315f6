"""The test kit: real servers, contract suites and faults, for the tests of maos and of other stores."""
