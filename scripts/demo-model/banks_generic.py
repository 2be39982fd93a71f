"""Topics, opinions and facts for the generic questions, all written for the demo model.

TOPICS: name variants / descriptions / sentences. The seventh sentence of every topic is held out.
"""
_RAW = """
# gardening, garden, plants | growing plants and flowers | soil, seeds and flower beds
my tomatoes have yellow leaves; when should I prune the roses; the lawn needs more compost; how deep do I plant tulip bulbs; slugs ate all the lettuce; the hedge has grown too high; which soil suits basil and mint; I sowed carrots in the greenhouse; the apple tree lost its blossoms; weeds cover the flower bed
# cooking, recipes, kitchen | preparing meals and baking | food, ovens and ingredients
how long do I boil the potatoes; the cake did not rise in the oven; add garlic and onions to the pan; my sauce is too salty; knead the dough for ten minutes; what can I use instead of butter; roast the chicken with lemon and thyme; the soup needs more pepper; whisk the eggs with sugar; the pasta stuck together
# travel, trips, holidays | journeys and hotels | flights, hotels and luggage
our flight to {city} was delayed; I want to book a hotel near the beach; do I need a visa for the trip; my suitcase was lost at the airport; the train to {city} leaves at noon; we plan a holiday in the mountains; which sights should tourists see in {city}; the hostel was full; I missed the ferry to the island; where is the passport control
# sports, games and matches, athletics | teams, matches and training | competitions and players
the team won the final by two goals; she ran a marathon in {city}; the goalkeeper was injured; our coach changed the training plan; he scored in the last minute; the tennis match was postponed; the referee showed a red card to the striker; swimmers broke the record; the league starts in {month}; they lost the basketball game
# music, songs, concerts | instruments and bands | listening and playing
the guitar is out of tune; their new album has ten songs; she sings in a choir; the concert in {city} was sold out; I practise the piano every day; the drummer left the band; the violin solo was the best part of the symphony; which key is this melody in; he plays jazz on the saxophone; the chorus repeats twice
# health, medicine, wellbeing | doctors and illness | symptoms, treatment and medicine
I have had a headache for three days; the doctor gave me pills against the cough; my knee is swollen; she has a fever and a sore throat; how often should I take the antibiotic; the nurse checked my blood pressure; the patient has a rash and feels dizzy; the wound needs a new bandage; my allergy gets worse in spring; he broke his arm
# weather, forecast, climate | rain, sun and storms | temperature and wind
it will rain all afternoon; a storm is coming from the west; the sun shines in {city}; fog covers the valley; tonight the temperature drops below zero; strong wind is expected on {day}; heavy snow and hail fell over the hills; clouds move in from the sea; it was the hottest day of the year; thunder woke us up
# finance, banking, money matters | savings, loans and shares | banks and interest
the interest on my loan went up; I want to open a savings account; the shares lost five percent; how do I pay into a pension; the bank raised its fees; our mortgage runs for twenty years; investors sold bonds and bought gold; inflation eats my savings; she transferred the rent; the exchange rate of the euro fell
# technology, computers, IT | devices and software | laptops, phones and programs
my laptop does not start; the phone battery drains quickly; install the new driver for the printer; the router has no signal; which keyboard works with a tablet; the hard disk is full; the monitor flickers after the software update; I dropped my tablet and the screen cracked; the wifi is slow upstairs; backup the files before you upgrade
# school, education, learning | pupils, teachers and lessons | exams and homework
the exam covers three chapters; my teacher gave us homework; the pupils wrote an essay; university starts in {month}; she got a good grade in maths; the lesson was about fractions; students handed in the assignment before class; the school library closes at four; he studies biology; the professor cancelled the lecture
# animals, pets, wildlife | dogs, cats and other creatures | care of animals
my {animal} does not eat; the vet cleaned the ears of our {animal}; a fox ran across the field; the {animal} needs a bigger cage; birds built a nest under the roof; the puppy chews on shoes; the kitten scratched and hid under the bed; our {animal} is afraid of loud noise; the farmer feeds the sheep; how long do turtles live
# cars, vehicles, motoring | engines, tyres and driving | garages and repairs
the engine makes a strange noise; I need new tyres for winter; the brakes squeak; my car failed the inspection; the battery of the van is dead; change the oil every year; the gearbox slips when the driver accelerates; a headlight is broken; the mechanic replaced the clutch; how far can an electric car go
# housing, real estate, homes | flats, rent and moving | buying and renting a home
the flat has two bedrooms; our landlord raised the rent; we move into the new house in {month}; the roof leaks; the tenant left without notice; a buyer looked at the cottage; the agent showed us an apartment with a balcony; the heating in the hallway is cold; the lease ends this summer; the neighbours are loud
# law, legal matters, courts | contracts, judges and rights | trials and lawyers
the judge delayed the trial; my lawyer read the contract; the witness changed her statement; the court fined the company; we signed a lease agreement with a clause on damages; he was sued by a neighbour; the jury found the defendant guilty; the law protects tenants; an appeal was filed in {month}; the attorney asked for bail
# politics, government, elections | parties, votes and laws | parliament and ministers
the minister resigned; voters go to the polls in {month}; parliament passed a new bill; the mayor of {city} gave a speech; the opposition asks for a referendum; the president met the ambassador; the senate rejected the budget after a long debate; the party chose a candidate; turnout was low; the coalition broke apart
# science, research, discovery | experiments and theories | physics, chemistry and biology
the experiment proved the theory; scientists found a new particle; the telescope saw a distant galaxy; the cell divides twice; the lab tested the chemical; gravity bends light; researchers measured the atom with a laser; the fossil is a million years old; the paper describes a new enzyme; the sample contained iron
# fashion, clothing, style | clothes, shoes and fabrics | what people wear
the coat is too large; which shoes go with a blue dress; the jeans shrank in the wash; silk scarves are in style; I need a suit for the wedding; the jacket lost a button; her wool sweater and leather boots look elegant; the shirt is available in three colours; the designer showed a new collection; these gloves are warm
# shopping, retail, stores | buying goods in shops | orders, prices and sales
the shop closes at eight; I bought two pairs for the price of one; the sale starts on {day}; the store has no more chairs; can I exchange the lamp; the cashier forgot the bag; customers queued at the mall for a bargain; the market sells fresh fish; my basket is full; which shop has the lowest price
# delivery, shipping, parcels | packages on their way | couriers and tracking
my parcel has not arrived; the tracking number does not work; the courier left the box at the wrong door; when will the package be delivered; the carton was damaged on the way; the driver rang but I was not at home; the shipment is stuck at customs; please send it to another address; the letter was returned to the sender; delivery takes five days
# jobs, careers, hiring | work, salary and applications | job offers and interviews
I applied for the position; the interview is on {day}; she got a promotion; the company hires ten engineers; my salary was raised; he quit his job last week; the recruiter read my resume and offered a contract; the boss approved my vacation; the team needs an intern; the night shift is exhausting
# art, painting, museums | pictures and sculptures | galleries and artists
the painting hangs in the museum; she draws portraits with charcoal; the gallery shows modern sculpture; the artist mixed blue and gold; the statue was restored; we saw an exhibition in {city}; his watercolour sketch was sold at the auction; the canvas has a crack; the pottery class starts soon; a mural covers the wall
# movies, film, cinema | actors, scenes and directors | watching films
the film was two hours long; the actor won a prize; the ending of the movie surprised me; the director shot the scene in {city}; the cinema shows a comedy; the trailer looks exciting; the sequel has a weak plot and poor acting; we watched a thriller last night; the screenplay was rewritten; the series has six episodes
# books, reading, literature | novels, authors and stories | libraries and chapters
the novel has three parts; the author wrote poems; I read a chapter every night; the library lent me a biography; the plot of the story is slow; her book was translated; the publisher printed a second edition of the essays; the hero dies on the last page; I like detective stories; the bookshop ordered a copy
# history, the past, antiquity | ancient times, wars and kings | past events
the king lost the battle; the castle was built in the middle ages; the empire fell after a long war; archaeologists dug up a roman road; the treaty ended the siege; queens ruled for a century; the revolution began when the soldiers marched on the palace; the old city had twelve gates; the manuscript is from the monastery; the pharaoh was buried with gold
# space, astronomy, stars | planets and rockets | the moon and the universe
the rocket reached orbit; the moon has no air; astronauts repaired the satellite; a comet passes in {month}; the planet has two rings; the probe landed on mars; the launch of the shuttle to the station was delayed; a star exploded; the eclipse lasts four minutes; the rover sends pictures of craters
# farming, agriculture, crops | fields, cattle and harvest | farmers and tractors
the harvest of wheat was poor; the tractor got stuck in the mud; cows give less milk in summer; the field was ploughed; the barn is full of hay; sheep graze on the hill; the farmer sprayed the corn against beetles; drought killed the crops; chickens lay fewer eggs; the irrigation pump broke
# energy, power, electricity | solar, wind and oil | plants and grids
solar panels cover the roof; the power plant was shut down; wind turbines stand off the coast; the grid failed in {city}; the price of gas doubled; the battery stores energy; the reactor and its generator produce enough electricity; coal is burned for heat; the meter shows the consumption; the dam drives a turbine
# environment, nature protection, ecology | pollution, forests and waste | keeping nature clean
plastic floats in the ocean; the forest was cut down; the river is polluted; volunteers cleaned the beach; recycle glass and paper; bees are dying out; carbon emissions and toxic waste harm the wetlands; the glacier melts; an oil spill killed the fish; the park protects rare frogs
# family, relatives, parenting | children and parents | life at home with kids
my daughter started to walk; the baby cries at night; my grandmother turned ninety; the twins argue about toys; our son does not sleep; my brother got married; the kids and their cousins visit grandpa on {day}; she is expecting a child; the nanny is ill; my parents live in {city}
# events, parties, celebrations | weddings, birthdays and guests | organising a party
the wedding has eighty guests; we need balloons for the birthday; the band plays at the party; the invitation says seven o'clock; who brings the cake; the hall for the ceremony is booked; the festival in {city} opens with fireworks and a parade; the bride was late; the speech was funny; let us celebrate the anniversary
# fitness, exercise, gym | training and muscles | workouts and yoga
I lift weights twice a week; the yoga class is full; do ten push-ups; my muscles are sore; the treadmill is broken; stretch before you run; the trainer showed us squats and a plank; I lost three kilos; the gym opens at six; how many steps should I walk
# safety, accidents, emergencies | fire, rescue and injuries | dangers and first aid
a fire broke out in the kitchen; the ambulance arrived late; wear a helmet on the site; smoke came out of the window; the worker fell off the ladder; the alarm did not ring; firefighters rescued two people from the flood; the exit was blocked; the gas leak was found in time; call the police
# security, cybersecurity, hacking | attacks on computers | malware and stolen passwords
hackers stole the passwords; the server was infected with a virus; a phishing mail asked for my login; the firewall blocked the attack; the key was leaked; malware encrypted our files; an intruder used the stolen credentials to break into the network; the breach exposed personal data; change the passcode; the vulnerability was patched
# transport, traffic, public transit | buses, roads and trains | commuting
the bus is late again; the road is closed for repairs; there is a traffic jam near {city}; the tram stops at the square; cyclists need a lane; my ticket for the metro expired; the commuters waited on the platform for the subway; the bridge is under construction; parking is expensive downtown; the pilot strike stopped the ferries
# business, companies, management | firms, markets and strategy | profits and customers
the company doubled its profit; the merger was approved; our competitor lowered the price; the board chose a new chief; the startup found an investor; sales fell in {month}; the manager presented the quarterly revenue to the shareholders; the factory will close; we signed a supplier; the brand is well known
# religion, faith, beliefs | churches, prayers and rituals | temples and holy days
the priest read a psalm; pilgrims walk to the temple; they pray five times a day; the church bells ring on {day}; monks live in silence; the mosque has a blue dome; the congregation sang a hymn before the sermon; the shrine stands on a hill; the rabbi explained the text; they fast for a month
# language, grammar, translation | words and foreign languages | vocabulary and spelling
how do you spell this word; the verb comes last in the sentence; translate the letter into French; the accent is on the first syllable; I learn ten new words a day; what is the plural of mouse; the adjective and the noun must agree in this dialect; she speaks four languages; the comma is wrong; which preposition is right
# mathematics, maths, numbers | equations and geometry | sums and proofs
solve the equation for x; the triangle has a right angle; the sum of the numbers is even; divide the result by seven; the proof has a gap; the circle has a radius of five; multiply the fraction and find the square root; the graph has a minimum; prime numbers are endless; the matrix has no inverse
# photography, photos, cameras | lenses and pictures | taking pictures
the lens is scratched; use a tripod for long exposure; the photo is out of focus; the flash is too bright; which camera is good at night; the portrait was shot at sunset; set the aperture and the shutter for a sharp picture; I edited the contrast; the film was overexposed; the zoom is stuck
# crafts, handiwork, DIY | sewing, wood and glue | making things by hand
I knit a scarf; glue the two boards together; the needle broke; cut the fabric along the line; sand the wood before painting; the shelf needs six screws; she sewed a quilt and crocheted a hat; the drill is too small; paint the fence green; fold the paper crane
# insurance, cover, claims | policies and damage | premiums and claims
my insurance does not cover the damage; the premium went up again; I filed a claim after the accident; the policy ends in {month}; the insurer asked for a report; is theft covered abroad; the adjuster assessed the damage and paid the claim; the deductible is high; cancel my life insurance; who is the beneficiary
# gaming, video games, play | consoles, levels and players | playing on screen
I cannot beat the boss in level nine; the console overheats; the multiplayer server lags; my character lost the sword; the new patch nerfed the wizard; we play cards online; the quest gives the player gold and a shield; the controller drifts; the puzzle has no solution; he streams his games
# coffee and drinks, beverages, bar | tea, coffee and juice | drinks and cafes
the espresso tastes bitter; I like green tea with honey; the juice is made of oranges; the barista burned the milk; a glass of red wine please; the beer is warm; she ordered a cappuccino and an iced lemonade; the cocktail has too much rum; the cafe ran out of beans; stir the cocoa
# furniture, interior, decoration | chairs, tables and rooms | furnishing a home
the sofa is too big for the room; a leg of the table is loose; we need curtains for the bedroom; the lamp matches the carpet; the wardrobe arrived without doors; the desk has two drawers; hang the mirror above the bookshelf in the living room; the mattress is too soft; the chair wobbles; the cushion is grey
"""


def _parse():
    out = []
    block = [l for l in _RAW.strip().splitlines() if l.strip()]
    for head, body in zip(block[::2], block[1::2]):
        names, *descs = [p.strip() for p in head[2:].split("|")]
        names = [n.strip() for n in names.split(",")]
        sents = [s.strip() for s in body.split(";")]
        held = len(out) % 4 == 3  # a whole topic that training never sees
        out.append(dict(names=names, descs=descs, sents=sents, train=[s for i, s in enumerate(sents) if i != 6], held=[sents[6]], held_topic=held))
    return out


TOPICS = _parse()

NOUN = [x.strip() for x in """the hotel, the meal, the film, the service, the phone, the course, the book, the concert, the chair, the trip,
the app, the coffee, the tour, the jacket, the printer, the staff, the show, the game, the room, the soup, the lecture, the bike, the lamp,
the music, the museum, the headset, the new menu, the website, the cake, the camera""".replace("\n", " ").split(",")]
ADJ = {
    1: [x.strip() for x in "terrible, awful, horrible, dreadful, disgusting, a disaster, the worst ever, unbearable, atrocious, a total waste of money, appalling, abysmal, hideous, a nightmare, utter rubbish".split(",")],
    2: [x.strip() for x in "disappointing, rather poor, not good, below average, a bit boring, weak, somewhat unpleasant, not worth the price, mediocre at best, too slow, a little dirty, not great, unsatisfying, worse than expected".split(",")],
    3: [x.strip() for x in "okay, average, acceptable, fine I guess, neither good nor bad, ordinary, as expected, so-so, passable, nothing special, decent enough, middling, usual, all right".split(",")],
    4: [x.strip() for x in "good, nice, pleasant, quite enjoyable, better than expected, not bad at all, solid, well made, comfortable, tasty and fair, satisfying, friendly, above average, worth it".split(",")],
    5: [x.strip() for x in "excellent, wonderful, fantastic, perfect, amazing, the best ever, outstanding, superb, absolutely brilliant, a dream, magnificent, flawless, marvellous, stunning, sensational".split(",")],
}
OPINION = {1: ["I hate it", "never again", "I want my evening back", "avoid it at all costs", "it made me sick", "zero stars from me", "I regret every minute"],
           2: ["I would not go back", "I had hoped for more", "it could be much better", "I was not impressed", "there are better ones", "sadly it let us down", "not my cup of tea"],
           3: ["it does its job", "I have no strong feelings", "you get what you pay for", "it is what it is", "some parts were better than others", "I may or may not return", "nothing to report"],
           4: ["I would come again", "we liked it", "I can recommend it", "a pleasant surprise", "it made us smile", "good value", "we were happy with it"],
           5: ["I love it", "I could not be happier", "everybody must try this", "five stars", "it took my breath away", "best day of my life", "I am in heaven"]}
# facts a text may hold: key -> (ids, question wordings, sentences)
FACTS = {
    "price": (["mentions_price", "price", "has_amount", "cost_named"], ["Does the text name a price?", "Is an amount of money mentioned?", "A sum of money appears", "Mentions a price"],
              ["it costs {money}", "I paid {money} for it", "the price was {money}", "they ask {money}", "{money} is too much for that", "we have a budget of {money}", "that makes {money} in total", "you can get it for {money}"]),
    "person": (["names_person", "person", "someone_named"], ["Is a person mentioned by name?", "Does a personal name appear?", "Names a person", "Someone is called by name"],
               ["{person} came along", "I met {person} there", "ask {person} about it", "{person} told me so", "my friend {person} agrees", "it was the idea of {person}", "{person} will take care of it", "we waited for {person}"]),
    "city": (["names_city", "city", "place_named"], ["Is a city mentioned?", "Does the name of a city appear?", "Names a city", "A town is named"],
             ["that was in {city}", "I live in {city}", "we drove to {city}", "the office is in {city}", "people from {city} know this", "it reminds me of {city}", "I am back from {city}", "{city} was far away"]),
    "date": (["mentions_day", "day", "date_given"], ["Is a weekday or month mentioned?", "Does the text say a day or a month?", "A date is given", "Mentions when it happens"],
             ["it was on {day}", "that happened in {month}", "see you on {day}", "it starts in {month}", "{day} would suit me", "since {month} it is like this", "they come every {day}", "until {month} nothing changed"]),
    "animal": (["mentions_animal", "animal", "pet"], ["Is an animal mentioned?", "Does an animal appear in the text?", "Mentions an animal"],
               ["a {animal} was there too", "my {animal} slept all day", "we saw a {animal}", "the {animal} made noise", "I had to feed the {animal}", "a small {animal} looked at us", "I took my {animal} with me", "the {animal} ran away"]),
    "colour": (["mentions_colour", "colour", "color"], ["Is a colour mentioned?", "Does the text name a colour?", "Mentions a colour"],
               ["it was painted {colour}", "I prefer {colour}", "the door is {colour}", "everything was {colour}", "a {colour} one lay next to it", "the {colour} version looks fine", "she wore {colour}", "the walls are {colour}"]),
    "question": (["asks_question", "question", "is_question"], ["Does the writer ask something?", "Is a question asked?", "Contains a question", "The writer wants to know something"],
                 ["what do you think about that?", "can anyone tell me more?", "is that normal?", "do you know why?", "how does this work?", "has it always been so?", "where could I read more?", "who decides that?"]),
    "thanks": (["says_thanks", "thanks", "grateful"], ["Does the writer say thank you?", "Is gratitude expressed?", "Contains thanks", "The writer is grateful"],
               ["thank you very much", "thanks a lot", "I am grateful for that", "many thanks", "I really appreciate it", "thanks for reading", "that was kind of you, thank you", "thx in advance"]),
}
FACT_FILL = ["it was quite long", "nothing else happened", "that is all for now", "it looks the same as before", "we talked about it for a while", "I noticed it today",
             "the rest is as usual", "I will write again later", "that is what I heard", "it took some time", "there was one more thing", "you may have seen it too"]

# "which one is named?": key of FILL -> (ids, wordings, sentences)
ENTITY = {
    "person": (["who", "person", "name"], ["Who is named?", "Which person is mentioned?", "Name in the text"], FACTS["person"][2]),
    "city": (["where", "city", "place"], ["Which city is named?", "Where is it?", "City in the text"], FACTS["city"][2]),
    "colour": (["colour", "color", "shade"], ["Which colour is mentioned?", "What colour is it?", "Colour in the text"], FACTS["colour"][2]),
    "animal": (["animal", "species", "pet"], ["Which animal appears?", "What animal is it?", "Animal in the text"], FACTS["animal"][2]),
    "day": (["day", "weekday", "when"], ["Which day is named?", "On which day?", "Day in the text"],
            ["see you on {day}", "it was on {day}", "{day} would suit me", "they come every {day}", "we meet on {day}", "last {day} was better", "it closed on {day}", "I will know by {day}"]),
    "month": (["month", "when", "period"], ["Which month is named?", "In which month?", "Month in the text"],
              ["that happened in {month}", "it starts in {month}", "from {month} on it was different", "until {month} nothing changed", "in {month} we return", "it was cold in {month}", "the plan is for {month}", "they moved in {month}"]),
    "company": (["company", "firm", "customer"], ["Which company is named?", "Name of the firm", "Company in the text"],
                ["we work for {company}", "the offer of {company} was lower", "{company} called again", "I bought it from {company}", "ask the people at {company}", "{company} is a good partner", "the letter came from {company}", "they moved to {company}"]),
    "browser": (["client", "browser", "device"], ["Which client is used?", "Where does it happen?", "Program or device in the text"],
                ["I use {browser}", "it happens in {browser}", "I tried it with {browser}", "on {browser} it looks odd", "we only have {browser}", "it works in {browser}", "with {browser} it is faster", "she opened it in {browser}"]),
}
