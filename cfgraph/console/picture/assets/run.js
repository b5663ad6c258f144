// What a run tells of nodes; without a run nothing.

const run = model.run;
const timeOf = (n) => 0;
const busiest = () => 1;
const runFacts = (n) => [];
