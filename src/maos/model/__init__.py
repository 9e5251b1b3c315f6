"""The pure part: what a change is, what an agent's state is. No I/O, no clock, no chance.

| word       | means                                                              | never means                     |
|------------|--------------------------------------------------------------------|---------------------------------|
| agent      | a durable identity with a state                                    | the program that plays it       |
| state      | the data of an agent at a version                                  | a snapshot                      |
| change     | one path of a state that became, changed or went                   | an event (which carries many)   |
| version    | a place in one stream                                              | a schema level, a format        |
| position   | a place in the whole journal                                       | a version                       |
| snapshot   | a kept fold of a stream at a version; may be deleted               | a backup                        |
| checkpoint | a name for a point to go back to                                   | SQLite's WAL flush              |
| upgrade    | change a schema level or a format                                  | move an agent (that is migrate) |
| lease      | the right to act on a name until a time                            | a lock in memory                |
"""
